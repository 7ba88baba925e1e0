#include "textflag.h"

// Four lanes at a time: A holds their a, B their b, in the order 0 2 1 3 that the unpack instructions give. A product is
// VPMULUDQ, which multiplies the low halves of 64-bit elements.

// LOAD fills A and B from the states at off(R8).
#define LOAD(off, A, B) \
	VMOVDQU off(R8), Y8; \
	VMOVDQU off+32(R8), Y9; \
	VPUNPCKLQDQ Y9, Y8, A; \
	VPUNPCKHQDQ Y9, Y8, B

// STORE puts them back.
#define STORE(off, A, B) \
	VPUNPCKLQDQ B, A, Y8; \
	VPUNPCKHQDQ B, A, Y9; \
	VMOVDQU Y8, off(R8); \
	VMOVDQU Y9, off+32(R8)

// ROUND adds the product of A's halves to B.
#define ROUND(A, B, T) \
	VPSRLQ $32, A, T; \
	VPMULUDQ T, A, T; \
	VPADDQ T, B, B

// STEP absorbs the vectors at off(R10).
#define STEP(off, A, B, T0, T1, T2) \
	VMOVDQU off(R10), T0; \
	VMOVDQU off+32(R10), T1; \
	VPUNPCKLQDQ T1, T0, T2; \
	VPUNPCKHQDQ T1, T0, T1; \
	VPXOR T2, A, A; \
	VPXOR T1, B, B; \
	ROUND(A, B, T0); \
	ROUND(B, A, T1); \
	ROUND(A, B, T2)

// func absorbAVX2(s *states, chunk *byte, blocks int)
TEXT ·absorbAVX2(SB), NOSPLIT, $0-24
	MOVQ s+0(FP), DI
	MOVQ chunk+8(FP), SI
	MOVQ blocks+16(FP), DX

block:
	MOVQ DI, R8
	MOVQ SI, R9
	MOVQ $16, CX

lanes16:
	LOAD(0, Y0, Y1)
	LOAD(64, Y2, Y3)
	LOAD(128, Y4, Y5)
	LOAD(192, Y6, Y7)
	MOVQ R9, R10
	MOVQ $8, R11

row:
	STEP(0, Y0, Y1, Y8, Y9, Y10)
	STEP(64, Y2, Y3, Y11, Y12, Y13)
	STEP(128, Y4, Y5, Y8, Y9, Y10)
	STEP(192, Y6, Y7, Y11, Y12, Y13)
	ADDQ $4096, R10
	DECQ R11
	JNZ  row

	STORE(0, Y0, Y1)
	STORE(64, Y2, Y3)
	STORE(128, Y4, Y5)
	STORE(192, Y6, Y7)
	ADDQ $256, R8
	ADDQ $256, R9
	DECQ CX
	JNZ  lanes16

	ADDQ $32768, SI
	DECQ DX
	JNZ  block
	VZEROUPPER
	RET
