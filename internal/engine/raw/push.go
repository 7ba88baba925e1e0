package raw

import (
	"encoding/binary"
)

// Subchannels: which object a method is for.
const (
	subHost    = 0 // the channel's own methods go to any
	subCompute = 1
	subCopy    = 4
)

// Methods of the channel (class/clc86f.h).
const (
	setObject  = 0x0000
	semAddrLo  = 0x005c // and _HI, PAYLOAD_LO, PAYLOAD_HI, EXECUTE
	semRelease = 1
	semAcquire = 3 // ACQ_CIRC_GEQ
	semSwitch  = 1 << 12
	semWFI     = 1 << 20 // wait until the engine is idle
	sem64      = 1 << 24
	semTime    = 1 << 25
)

// Methods of compute (clcbc0.h).
const (
	waitForIdle          = 0x0110
	invalidateCaches     = 0x021c
	invalidateSked       = 0x0298
	setSharedWindow      = 0x02a0
	sendPCASA            = 0x02b4
	sendSignalingPCAS2B  = 0x02c0
	setLocalNonThrottled = 0x02e4
	setLocalMemory       = 0x0790
	setQMDVersion        = 0x0288
	setSPAVersion        = 0x0310
	setLocalWindow       = 0x07b0
	invalidateNoWFI      = 0x1698
	invalidateTexture    = 0x1288 // the data cache, all lines

	cacheInstruction = 1 << 0
	cacheGlobal      = 1 << 4
	cacheConstant    = 1 << 12

	pcasDecrement        = 7  // PCAS_ACTION_DECREMENT_DEPENDENCE
	pcasPrefetchSchedule = 9  // PCAS_ACTION_PREFETCH_SCHEDULE
	pcasCopySchedule     = 10 // PCAS_ACTION_INVALIDATE_PREFETCH_COPY_SCHEDULE
)

// Methods of copying (clc8b5.h).
const (
	copySemaphoreA  = 0x0240
	copyLaunch      = 0x0300
	copyOffsetIn    = 0x0400 // and _OUT, PITCH_IN, PITCH_OUT, LINE_LENGTH_IN, LINE_COUNT
	copyRemapConstA = 0x0700 // and _B, COMPONENTS
	copyNonPiped    = 2 << 0
	copyFlush       = 1 << 2
	copySemOne      = 1 << 3
	copySrcPitch    = 1 << 7
	copyDstPitch    = 1 << 8
	copyMultiLine   = 1 << 9
	copyRemap       = 1 << 10
)

// A pushbuffer is command words.
type pushbuffer struct{ w []uint32 }

// method writes to consecutive methods from m on.
func (p *pushbuffer) method(sub, m uint32, args ...uint32) {
	p.w = append(p.w, 1<<29|uint32(len(args))<<16|sub<<13|m>>2)
	p.w = append(p.w, args...)
}

// immediate writes one value of at most 13 bits.
func (p *pushbuffer) immediate(sub, m, v uint32) { p.w = append(p.w, 4<<29|v<<16|sub<<13|m>>2) }

// release writes payload to addr once everything before it on the channel is complete; and the time 8 bytes behind it.
func (p *pushbuffer) release(addr, payload uint64) {
	p.method(subHost, semAddrLo, uint32(addr), uint32(addr>>32), uint32(payload), uint32(payload>>32),
		semRelease|semWFI|sem64|semTime)
}

// stamp is release that waits for nothing.
func (p *pushbuffer) stamp(addr, payload uint64) {
	p.method(subHost, semAddrLo, uint32(addr), uint32(addr>>32), uint32(payload), uint32(payload>>32),
		semRelease|sem64|semTime)
}

// word writes four bytes and waits for nothing.
func (p *pushbuffer) word(addr uint64, payload uint32) {
	p.method(subHost, semAddrLo, lo(addr), hi(addr), payload, 0, semRelease)
}

// acquire waits until the four bytes at addr are at least payload.
func (p *pushbuffer) acquire(addr uint64, payload uint32) {
	p.method(subHost, semAddrLo, lo(addr), hi(addr), payload, 0, semAcquire)
}

// launch starts the grid of a descriptor.
func (p *pushbuffer) launch(descriptor uint64) {
	p.method(subCompute, sendPCASA, uint32(descriptor>>8))
	p.immediate(subCompute, sendSignalingPCAS2B, pcasPrefetchSchedule)
}

// schedule lets the grid of a descriptor begin once others have counted it down.
func (p *pushbuffer) schedule(descriptor uint64) {
	p.method(subCompute, sendPCASA, uint32(descriptor>>8))
	p.immediate(subCompute, sendSignalingPCAS2B, pcasCopySchedule)
}

// countDown counts the grid of a descriptor down by one.
func (p *pushbuffer) countDown(descriptor uint64) {
	p.method(subCompute, sendPCASA, uint32(descriptor>>8))
	p.immediate(subCompute, sendSignalingPCAS2B, pcasDecrement)
}

// invalidate makes multiprocessors forget what they have read: it may have been written since.
func (p *pushbuffer) invalidate() {
	p.method(subCompute, invalidateNoWFI, cacheInstruction|cacheGlobal|cacheConstant)
	p.method(subCompute, invalidateTexture, 0)
}

// copy copies height rows of width bytes. Of several rows no pitch may be less than the width: the copy engine fails
// then.
func (p *pushbuffer) copy(dst, src uint64, dstPitch, srcPitch, width, height uint32) {
	p.method(subCopy, copyOffsetIn, uint32(src>>32), uint32(src), uint32(dst>>32), uint32(dst), srcPitch, dstPitch,
		width, height)
	p.method(subCopy, copyLaunch, copyNonPiped|copySrcPitch|copyDstPitch|rows(height))
}

// fill sets height rows of width elements of size bytes. The source's pitch is looked at although nothing is read.
func (p *pushbuffer) fill(dst uint64, pitch, width, height, value uint32, size int) {
	const constA = 4 // DST_X_CONST_A
	p.method(subCopy, copyRemapConstA, value, 0, constA|uint32(size-1)<<16)
	p.method(subCopy, copyOffsetIn, uint32(dst>>32), uint32(dst), uint32(dst>>32), uint32(dst), pitch, pitch, width,
		height)
	p.method(subCopy, copyLaunch, copyNonPiped|copySrcPitch|copyDstPitch|copyRemap|rows(height))
}

func rows(height uint32) uint32 {
	if height > 1 {
		return copyMultiLine
	}
	return 0
}

// bytes is the words as the GPU reads them.
func (p *pushbuffer) bytes() []byte {
	b := make([]byte, 0, 4*len(p.w))
	for _, w := range p.w {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
