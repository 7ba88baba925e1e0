package api

import (
	"encoding/json"
	"testing"
	"time"
)

// Scripts read what --json prints: names, their order and what is left out when it is empty stay as they are.
func TestResultsInJSON(t *testing.T) {
	steps := []Step{{Name: "freeze", MS: Millis(1234567 * time.Nanosecond), Stall: true}}
	for _, c := range []struct {
		of   any
		want string
	}{
		{CheckpointResult{PID: 1, Name: "n", Dir: "/d", Kind: "full", Mode: "cow", ModeReason: "r", StallMS: 2,
			DataStallMS: 3, DrainMS: 4, TotalMS: 5, Bytes: 6, BytesNew: 7, HostBytes: 8, Chunks: 9, ChunksNew: 10,
			ChunksZero: 11, ChunksReused: 12, ChunksRecopied: 13, ChunksAside: 14, Waits: 15, WaitedMS: 16, Guesses: 17,
			Known:          18,
			Mispredictions: 19, Digest: "20", Steps: steps, LeaveRunning: true, Warnings: []string{"w"}},
			`{"pid":1,"name":"n","dir":"/d","kind":"full","mode":"cow","mode_reason":"r","stall_ms":2,` +
				`"data_stall_ms":3,"drain_ms":4,"total_ms":5,"bytes":6,"bytes_new":7,"host_bytes":8,"chunks":9,` +
				`"chunks_new":10,"chunks_zero":11,"chunks_reused":12,"chunks_recopied":13,"chunks_aside":14,` +
				`"waits":15,"waited_ms":16,"guesses":17,"known":18,"mispredictions":19,"digest":"20",` +
				`"steps":[{"name":"freeze","ms":1.234,"stall":true}],"leave_running":true,"warnings":["w"]}`},
		{CheckpointResult{},
			`{"pid":0,"name":"","dir":"","kind":"","mode":"","stall_ms":0,"data_stall_ms":0,"drain_ms":0,` +
				`"total_ms":0,"bytes":0,"bytes_new":0,"host_bytes":0,"chunks":0,"chunks_new":0,"chunks_zero":0,` +
				`"chunks_reused":0,"chunks_recopied":0,"chunks_aside":0,"waits":0,"waited_ms":0,"guesses":0,` +
				`"known":0,"mispredictions":0,"digest":"","steps":null,"leave_running":false}`},
		{RestoreResult{PID: 1, Name: "n", Source: "warm", Warm: true, Bytes: 2, BytesFilled: 3, Missing: 4, TotalMS: 5,
			Steps: steps, Log: "l"},
			`{"pid":1,"name":"n","source":"warm","warm":true,"bytes":2,"bytes_filled":3,"missing":4,"total_ms":5,` +
				`"steps":[{"name":"freeze","ms":1.234,"stall":true}],"log":"l"}`},
		{RollbackResult{PID: 1, StallMS: 2, Bytes: 3, BytesFilled: 4, Steps: steps, Warnings: []string{"w"}},
			`{"pid":1,"stall_ms":2,"bytes":3,"bytes_filled":4,"steps":[{"name":"freeze","ms":1.234,"stall":true}],` +
				`"warnings":["w"]}`},
		{SuspendResult{PID: 1, To: "host", BytesFreed: 2, TotalMS: 3, Steps: steps},
			`{"pid":1,"to":"host","bytes_freed":2,"total_ms":3,"steps":[{"name":"freeze","ms":1.234,"stall":true}]}`},
		{ResumeResult{PID: 1, Bytes: 2, TotalMS: 3, Steps: steps},
			`{"pid":1,"bytes":2,"total_ms":3,"steps":[{"name":"freeze","ms":1.234,"stall":true}]}`},
	} {
		got, err := json.Marshal(c.of)
		if err != nil || string(got) != c.want {
			t.Errorf("%T: %v\n%s\nwant\n%s", c.of, err, got, c.want)
		}
	}
}
