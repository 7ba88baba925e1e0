package device

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/fatbin"
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// ptxOf finds the PTX text in what a program hands to a load call.
func ptxOf(image []byte) ([]byte, Status, error) {
	switch fatbin.Detect(image) {
	case fatbin.Object:
		return nil, NoBinaryForGPU,
			errors.New("image is a cubin (machine code for NVIDIA GPUs): the software GPU runs PTX only; " + remedy)
	case fatbin.Container:
		f, err := fatbin.Open(image)
		if err != nil {
			return nil, InvalidImage, err
		}
		e := f.BestPTX(capabilityMajor*10 + capabilityMinor)
		if e == nil {
			return nil, NoBinaryForGPU,
				fmt.Errorf("fat binary of %d images holds no PTX for compute capability %d.%d or less; %s",
					len(f.Entries), capabilityMajor, capabilityMinor, remedy)
		}
		text, err := e.Data()
		if err != nil {
			return nil, InvalidImage, err
		}
		return text, Success, nil
	case fatbin.Text:
		return image, Success, nil
	}
	return nil, InvalidImage, errors.New("image is neither PTX text nor a fat binary")
}

const remedy = "compile with -gencode arch=compute_90,code=compute_90"

// sourceName is the file that errors in a module name: what programs load has none.
const sourceName = "module.ptx"

// parse reads PTX as an assembler would: names that are not declared and instructions that PTX does not have
// are errors of the module. Instructions that only the software GPU does not have are not: they are refused
// with the kernel that has them, when it is launched.
func parse(text []byte) (*ptx.Module, error) {
	m, err := ptx.Parse(sourceName, text)
	if err != nil {
		return nil, err
	}
	if err := ptx.Check(m); err != nil {
		return nil, err
	}
	var errs ptx.ErrorList
	for _, d := range m.Decls {
		if f, ok := d.(*ptx.Func); ok && f.Body != nil {
			errs = unknownInstructions(f.Body, errs)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return m, nil
}

// mallocs reports whether a module names the functions that need a heap on the device.
func mallocs(m *ptx.Module) bool {
	return slices.ContainsFunc(m.Decls, func(d ptx.Decl) bool {
		f, ok := d.(*ptx.Func)
		return ok && f.Body == nil && (f.Name == "malloc" || f.Name == "free" || f.Name == "__nv_aligned_device_malloc")
	})
}

func unknownInstructions(b *ptx.Block, errs ptx.ErrorList) ptx.ErrorList {
	for _, s := range b.Stmts {
		if len(errs) >= ptx.MaxErrors {
			break
		}
		switch s := s.(type) {
		case *ptx.Block:
			errs = unknownInstructions(s, errs)
		case *ptx.Inst:
			_, err := isa.Decode(s)
			if u, ok := errors.AsType[*isa.UnsupportedError](err); ok && u.Unknown {
				errs = append(errs, &ptx.Error{File: sourceName, Pos: s.Pos, Msg: u.Inst + ": " + u.Why})
			}
		}
	}
	return errs
}
