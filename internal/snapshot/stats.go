package snapshot

import "time"

// Stats says what a snapshot did and where the time went. Durations are nanoseconds in JSON. Chunks are counted, bytes
// are ChunkSize times as many unless said.
type Stats struct {
	Mode Mode   `json:"mode"` // really used
	Why  string `json:"why"`  // why that one

	Bytes  uint64 `json:"bytes"` // of all regions
	Chunks int    `json:"chunks"`
	Zero   int    `json:"chunks_zero"` // zero at the freeze
	Had    int    `json:"chunks_had"`  // that the sink had before
	New    int    `json:"chunks_new"`  // given to the sink, some of them perhaps not part of the final state

	Staged        int `json:"chunks_staged"`         // copied aside by Precopy
	Predrained    int `json:"chunks_predrained"`     // drained by Precopy
	Skipped       int `json:"chunks_skipped"`        // left to the stall by Precopy, because they change all the time
	Changed       int `json:"chunks_changed"`        // that Precopy held and that were different at the freeze
	CaptureCopied int `json:"chunks_capture_copied"` // copied aside inside the stall
	CaptureDrain  int `json:"chunks_capture_drain"`  // drained inside the stall
	Drained       int `json:"chunks_drained"`        // drained after it
	Aside         int `json:"chunks_aside"`          // copied aside after the stall, before the program wrote them
	Waits         int `json:"waits"`                 // calls of BeforeWrite that had to wait
	Verified      int `json:"chunks_verified"`       // drained chunks whose bytes were digested on the CPU

	StagingBytes uint64 `json:"staging_bytes"`

	PrecopyDigestNs  time.Duration `json:"precopy_digest_ns"`
	PrecopyHaveNs    time.Duration `json:"precopy_have_ns"`
	PrecopyReserveNs time.Duration `json:"precopy_reserve_ns"` // allocate staging
	PrecopyStageNs   time.Duration `json:"precopy_stage_ns"`
	PrecopyDrainNs   time.Duration `json:"precopy_drain_ns"`
	PrecopyNs        time.Duration `json:"precopy_ns"`
	CaptureHotNs     time.Duration `json:"capture_hot_ns"`    // copy and digest at once what changes all the time
	CaptureDigestNs  time.Duration `json:"capture_digest_ns"` // digest the rest
	CapturePlanNs    time.Duration `json:"capture_plan_ns"`   // compare, on the CPU
	CaptureCopyNs    time.Duration `json:"capture_copy_ns"`
	CaptureDrainNs   time.Duration `json:"capture_drain_ns"`
	CaptureNs        time.Duration `json:"capture_ns"`
	AsideNs          time.Duration `json:"aside_ns"`        // that they took, in all
	DrainVerifyNs    time.Duration `json:"drain_verify_ns"` // digest the staged copies again
	DrainNs          time.Duration `json:"drain_ns"`
}

// Progress says how far long work is.
type Progress struct {
	Step  string // "precopy", "capture", "drain", "fill"
	Done  uint64 // bytes
	Total uint64
}

// lap returns the time since *t and sets *t to now.
func lap(t *time.Time) time.Duration {
	now := time.Now()
	d := now.Sub(*t)
	*t = now
	return d
}
