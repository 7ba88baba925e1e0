package trace

import (
	"encoding/binary"
	"fmt"
)

// Append encodes r at the end of b. It fails when the record would be longer than MaxRecord.
func Append(b []byte, r Record) ([]byte, error) {
	start := len(b)
	var flags uint16
	var fixed any
	var tail []byte
	n := func(v int) uint32 { return uint32(v) }
	switch r := r.(type) {
	case *Launch:
		flags, tail = r.Flags, r.Params
		fixed = rawLaunch{r.Kernel, r.Thread, r.Cell, r.Shared, r.Grid, r.Block, r.Cluster, n(len(tail)), r.Stream}
	case *Copy:
		flags = r.Flags
		fixed = rawCopy{r.Call, r.Thread, r.Cell, 0, r.Stream, r.Dst, r.DstPitch, r.DstSlice, r.Src, r.SrcPitch,
			r.SrcSlice, r.Width, r.Height, r.Depth}
	case *Module:
		flags, fixed = r.Flags, rawModule{r.ID, r.Handle, r.Bytes, r.Code, r.Kind, r.Call, r.Digest}
	case *Code:
		fixed, tail = rawCode{r.Module, r.Offset, n(len(r.Bytes)), 0}, r.Bytes
	case *Unload:
		fixed = rawUnload{r.Module}
	case *Kernel:
		flags, fixed = r.Flags, rawKernel{r.ID, n(len(r.Params)), r.Module, r.Handle, n(len(r.Name)), 0}
		for _, p := range r.Params {
			tail = binary.LittleEndian.AppendUint32(tail, p.Offset)
			tail = binary.LittleEndian.AppendUint32(tail, p.Size)
		}
		tail = append(tail, r.Name...)
	case *Alloc:
		fixed = rawAlloc{r.Addr, r.Bytes, r.Block, r.Offset, r.Kind, r.Device}
	case *Free:
		fixed = rawFree{r.Addr, r.Bytes}
	case *Graph:
		flags, fixed = r.Flags, rawGraph{r.ID, r.Nodes, r.Handle}
	case *GraphVersion:
		flags, fixed = r.Flags, rawGraphVersion{r.ID, r.Base, r.Handle}
	case *GraphEdges:
		fixed = rawGraphEdges{r.ID, n(len(r.Edges))}
		for _, e := range r.Edges {
			tail = binary.LittleEndian.AppendUint32(tail, e.From)
			tail = binary.LittleEndian.AppendUint32(tail, e.To)
		}
	case *GraphEnd:
		fixed = rawGraphEnd{ID: r.ID}
	case *GraphLaunch:
		flags, fixed = r.Flags, rawGraphLaunch{r.Graph, r.Thread, r.Cell, 0, r.Stream}
	case *GraphFree:
		fixed = rawGraphFree{ID: r.ID}
	case *Other:
		flags, fixed = r.Flags, rawOther{r.Call, r.Thread, r.Cell, 0, r.Stream}
	case *Failed:
		fixed = rawFailed{r.Thread, r.Result}
	case *Ready:
		fixed = rawReady{}
	case *Data:
		flags, fixed, tail = r.Flags, rawData{r.Addr, r.Thread, n(len(r.Bytes))}, r.Bytes
	case *Range:
		fixed = rawRange{r.Thread, r.Nth, n(len(r.Name)), n(len(r.Reason))}
		tail = append([]byte(r.Name), r.Reason...)
	case *RangeEnd:
		fixed = rawRangeEnd{Thread: r.Thread}
	case *Variable:
		fixed, tail = rawVariable{r.Module, r.Addr, r.Bytes, n(len(r.Name)), 0}, []byte(r.Name)
	case *Function:
		fixed, tail = rawFunction{r.Kernel, n(len(r.Attributes))}, words(r.Attributes)
	case *Order:
		flags, fixed = r.Flags, rawOrder{r.Thread, r.Kind, r.Stream, r.Event}
	case *After:
		fixed, tail = rawAfter{Works: n(len(r.Works))}, words(r.Works)
	case *Program:
		var args []byte
		for _, a := range r.Args {
			args = append(append(args, a...), 0)
		}
		fixed = rawProgram{r.Start, r.PID, r.PPID, r.GPU, r.Driver, n(len(r.Name)), n(len(r.Exe)), n(len(args)),
			n(len(r.Devices))}
		tail = append(append(append(tail, r.Name...), r.Exe...), args...)
		for _, d := range r.Devices {
			tail = append(tail, d[:]...)
		}
	case *Text:
		fixed, tail = rawText{r.Digest, r.Total, r.Offset, n(len(r.Bytes)), 0}, r.Bytes
	case *Image:
		flags, fixed = r.Flags, rawImage{r.ID, r.Handle, r.Bytes, r.Kind, r.Call, r.Digest, n(len(r.Texts)), 0}
		for _, t := range r.Texts {
			tail = binary.LittleEndian.AppendUint32(tail, t.Arch)
			tail = append(append(tail, 0, 0, 0, 0), t.Digest[:]...)
		}
	case *Found:
		fixed = rawFound{r.Image, r.TextRef.Digest, r.Arch, 0}
	case *Exit:
		flags, fixed = r.Flags, rawExit{r.Launches, r.Graphs, r.Copies, r.Waits, uint64(r.Waited)}
	case *End:
		fixed = rawEnd{}
	}
	b = append(b, make([]byte, headerSize)...)
	b, err := binary.Append(b, binary.LittleEndian, fixed)
	if err != nil {
		return nil, fmt.Errorf("%v record: %w", r.Type(), err)
	}
	b = append(b, tail...)
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	size := len(b) - start
	if size > MaxRecord {
		return nil, fmt.Errorf("a %v record of %d bytes, limit %d", r.Type(), size, MaxRecord)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(size))
	binary.LittleEndian.PutUint16(b[start+4:], uint16(r.Type()))
	binary.LittleEndian.PutUint16(b[start+6:], flags)
	return b, nil
}

func words(list []uint32) (b []byte) {
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
