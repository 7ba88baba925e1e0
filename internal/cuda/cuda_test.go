package cuda

import (
	"errors"
	"fmt"
	"testing"
)

func TestErrorNamesCallAndResult(t *testing.T) {
	err := fmt.Errorf("region 3: %w", Check(ErrOutOfMemory, "cuMemCreate(size 0x200000)"))
	if got, want := err.Error(), "region 3: cuMemCreate(size 0x200000): CUDA_ERROR_OUT_OF_MEMORY (2)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, ErrOutOfMemory) || errors.Is(err, ErrInvalidValue) {
		t.Errorf("errors.Is does not see the result in %v", err)
	}
	if err := Check(Success, "cuInit"); err != nil {
		t.Errorf("success became %v", err)
	}
}

func TestUnknownResultKeepsItsNumber(t *testing.T) {
	if got, want := Result(12345).String(), "CUresult(12345)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnsupportedIsNotSupported(t *testing.T) {
	err := fmt.Errorf("suspend: %w", &UnsupportedError{Call: "cuCheckpointProcessLock", Needs: "driver ≥ 570",
		Library: "libcuda.so.1", Version: 12040})
	if !errors.Is(err, ErrNotSupported) {
		t.Errorf("%v is not ErrNotSupported", err)
	}
	want := "suspend: cuCheckpointProcessLock not supported by libcuda.so.1, needs driver ≥ 570 (this one serves " +
		"CUDA 12.4)"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestNamesAsToolsPrintThem(t *testing.T) {
	u := UUID{0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if got, want := u.String(), "GPU-deadbeef-0102-0304-0506-0708090a0b0c"; got != want {
		t.Errorf("UUID %q, want %q", got, want)
	}
	if got := Version(13000).String(); got != "13.0" {
		t.Errorf("version %q", got)
	}
	if got := ProcessCheckpointed.String(); got != "checkpointed" {
		t.Errorf("state %q", got)
	}
}
