// Package api holds the JSON types of the daemon's HTTP interface, which is
// served on the unix socket daemon.sock of the runtime directory.
//
// Long operations (checkpoint, restore, rollback, suspend, resume) answer 200 with a
// stream of newline-delimited [Event] values; the last one carries either Result
// or Error. Short ones answer one JSON value, or an [Error] with a 4xx or 5xx
// status. The package imports nothing of holdfast, so that clients stay small.
package api

import (
	"encoding/json"
	"time"
)

// The endpoints.
const (
	PathVersion    = "/v1/version"    // GET → Version
	PathProcesses  = "/v1/processes"  // GET → []Process
	PathCheckpoint = "/v1/checkpoint" // POST CheckpointRequest → Event… CheckpointResult
	PathRestore    = "/v1/restore"    // POST RestoreRequest → Event… RestoreResult
	PathRollback   = "/v1/rollback"   // POST RollbackRequest → Event… RollbackResult
	PathSuspend    = "/v1/suspend"    // POST SuspendRequest → Event… SuspendResult
	PathResume     = "/v1/resume"     // POST ResumeRequest → Event… ResumeResult
	PathWait       = "/v1/wait"       // POST WaitRequest → Event… WaitResult when the restored program has ended
	PathShutdown   = "/v1/shutdown"   // POST ShutdownRequest → {}
	PathMetrics    = "/metrics"       // GET → Prometheus text format
)

// Version says who answers.
type Version struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Held    int       `json:"held"` // processes held now
}

// The states of a process.
const (
	StateRunning       = "running"
	StateCheckpointing = "checkpointing"
	StateSuspended     = "suspended"
	StateRestoring     = "restoring"
	StateDead          = "dead" // ended by a signal after a checkpoint; its memory is kept for a warm restore
)

// Process is one held program.
type Process struct {
	PID           int    `json:"pid"`
	Name          string `json:"name"`
	GPU           string `json:"gpu"` // "native" or "soft"
	State         string `json:"state"`
	ResidentBytes uint64 `json:"resident_bytes"` // device memory the keeper holds for it
	// of its process tree, not there yet after a restore on demand
	MissingBytes uint64    `json:"missing_bytes,omitempty"`
	Allocations  int       `json:"allocations"`
	Launches     uint64    `json:"launches"`
	Devices      []string  `json:"devices"` // UUIDs, GPU-… form
	Exe          string    `json:"exe"`
	Command      []string  `json:"command"`
	Started      time.Time `json:"started"`
	// directory of the last image that it can be restored from
	LastCheckpoint string   `json:"last_checkpoint,omitempty"`
	Caveats        []Caveat `json:"caveats,omitempty"`
}

// A Caveat is something of a program that cannot be held, and why.
type Caveat struct {
	Code  string `json:"code"`
	Text  string `json:"text"`
	Fatal bool   `json:"fatal"` // a whole-process checkpoint is refused while it stands
}

// A Step is one timed part of an operation.
type Step struct {
	Name  string  `json:"name"`
	MS    float64 `json:"ms"`
	Stall bool    `json:"stall"` // the program stood still meanwhile
}

// Millis is a time in milliseconds, to the microsecond.
func Millis(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }

// A Progress reports on long work.
type Progress struct {
	Phase string `json:"phase"`
	Done  uint64 `json:"done"`  // bytes
	Total uint64 `json:"total"` // bytes; 0 = unknown
}

// An Event is one line of a stream.
type Event struct {
	Progress *Progress       `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    *Error          `json:"error,omitempty"`
}

// An Error is a refusal or a failure.
type Error struct {
	Code    string `json:"code"` // "not_found", "refused", "busy", "failed", "denied", "bad_request"
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func (e *Error) Error() string {
	if e.Remedy != "" {
		return e.Message + " (" + e.Remedy + ")"
	}
	return e.Message
}

// CheckpointRequest asks for an image of a running program.
type CheckpointRequest struct {
	Target       string `json:"target"` // PID or name
	Dir          string `json:"dir"`    // absolute; absent or an empty directory
	LeaveRunning bool   `json:"leave_running"`
	GPUOnly      bool   `json:"gpu_only"`
	Mode         string `json:"mode"`       // "auto", "stage", "cow", "recopy", "stop"; "" = auto
	TCPClose     bool   `json:"tcp_close"`  // TCP connections are left out: they are closed after a restore
	TimeoutMS    int    `json:"timeout_ms"` // how long the freeze may wait for the program; 0 = 10 s
}

// CheckpointResult describes a finished image.
type CheckpointResult struct {
	PID        int    `json:"pid"`
	Name       string `json:"name"`
	Dir        string `json:"dir"`
	Kind       string `json:"kind"` // "full" or "gpu-only"
	Mode       string `json:"mode"`
	ModeReason string `json:"mode_reason,omitempty"`
	// gate closed to gate open (to dump done, where the program is not left running)
	StallMS        float64 `json:"stall_ms"`
	DataStallMS    float64 `json:"data_stall_ms"` // of it, for the device memory
	DrainMS        float64 `json:"drain_ms"`
	TotalMS        float64 `json:"total_ms"`
	Bytes          uint64  `json:"bytes"`       // device memory in the image
	BytesNew       uint64  `json:"bytes_new"`   // of it, written by this checkpoint
	HostBytes      uint64  `json:"host_bytes"`  // of the processes' own memory, in CRIU's files
	Chunks         int     `json:"chunks"`      // of 2 MiB
	ChunksNew      int     `json:"chunks_new"`  // written by this checkpoint
	ChunksZero     int     `json:"chunks_zero"` // all zero: not stored
	ChunksReused   int     `json:"chunks_reused"`
	ChunksRecopied int     `json:"chunks_recopied"` // changed between the copy and the stall
	ChunksAside    int     `json:"chunks_aside"`    // mode "cow": copied aside before the program wrote them
	// mode "cow": launches and copies that waited for what they write to be kept
	Waits    int     `json:"waits"`
	WaitedMS float64 `json:"waited_ms"` // in all
	// mode "cow": launches and copies of which not all that they do was foreseen
	Guesses        int      `json:"guesses"`
	Known          int      `json:"known"`          // mode "cow": launches that were foreseen with contents of memory
	Mispredictions int      `json:"mispredictions"` // captures lost to a write that was not foreseen, and taken again
	Digest         string   `json:"digest"`         // of the device memory: hex
	Steps          []Step   `json:"steps"`
	LeaveRunning   bool     `json:"leave_running"`
	Warnings       []string `json:"warnings,omitempty"`
}

// RestoreRequest asks for a program back from an image.
type RestoreRequest struct {
	Dir       string `json:"dir"` // absolute
	Name      string `json:"name,omitempty"`
	Detach    bool   `json:"detach"`
	OnDemand  bool   `json:"on_demand"`       // the program runs before its memory is there
	ClientPID int    `json:"client_pid"`      // not 0: the program gets the standard streams of who asks
	Trust     bool   `json:"trust,omitempty"` // although the image belongs to another user
}

// RestoreResult describes a restored program.
type RestoreResult struct {
	PID         int     `json:"pid"`
	Name        string  `json:"name"`
	Source      string  `json:"source"` // "warm" or "cold"
	Warm        bool    `json:"warm"`
	Bytes       uint64  `json:"bytes"`
	BytesFilled uint64  `json:"bytes_filled"` // read from the image
	Missing     uint64  `json:"missing"`      // on demand: bytes not there yet when the program began to run
	TotalMS     float64 `json:"total_ms"`
	Steps       []Step  `json:"steps"`
	Log         string  `json:"log,omitempty"` // where a detached program's output goes
}

// RollbackRequest puts the device memory of a gpu-only or full image back into the live program it came from.
type RollbackRequest struct {
	Target string `json:"target"`
	Dir    string `json:"dir"`
	Trust  bool   `json:"trust,omitempty"` // although the image belongs to another user
}

// RollbackResult describes a rollback.
type RollbackResult struct {
	PID         int      `json:"pid"`
	StallMS     float64  `json:"stall_ms"`
	Bytes       uint64   `json:"bytes"`
	BytesFilled uint64   `json:"bytes_filled"` // chunks that differed
	Steps       []Step   `json:"steps"`
	Warnings    []string `json:"warnings,omitempty"`
}

// SuspendRequest takes a program off the GPU.
type SuspendRequest struct {
	Target string `json:"target"`
	To     string `json:"to"`  // "host" (default), "disk", or "gpu": the keeper keeps the bytes where they are
	Dir    string `json:"dir"` // for "disk"
}

// SuspendResult describes a suspended program.
type SuspendResult struct {
	PID        int     `json:"pid"`
	To         string  `json:"to"`
	BytesFreed uint64  `json:"bytes_freed"` // of GPU memory
	TotalMS    float64 `json:"total_ms"`
	Steps      []Step  `json:"steps"`
}

// ResumeRequest lets a suspended program go on.
type ResumeRequest struct {
	Target string `json:"target"`
}

// ResumeResult describes a resumed program.
type ResumeResult struct {
	PID     int     `json:"pid"`
	Bytes   uint64  `json:"bytes"`
	TotalMS float64 `json:"total_ms"`
	Steps   []Step  `json:"steps"`
}

// WaitRequest waits for the end of a program that this daemon restored.
type WaitRequest struct {
	PID int `json:"pid"`
}

// WaitResult is how it ended.
type WaitResult struct {
	PID    int `json:"pid"`
	Status int `json:"status"` // exit status, or 128+signal
}

// ShutdownRequest ends the daemon. Held programs run on.
type ShutdownRequest struct {
	Force bool `json:"force"` // although programs are held
}
