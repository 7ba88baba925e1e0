// Package isa is the table of PTX instructions: for every opcode the modifiers
// it may carry, the types and operands it takes and what it does to the world.
// Decode matches one parsed instruction against the table.
//
// The table is the one place that says what an instruction is; the executor,
// and later the analyses, are driven by it. It follows the PTX ISA 9.0,
// chapter 9. Modifiers are matched as a set, not as a sequence, because ptxas
// takes the memory-order modifiers in any order and compilers use that
// freedom ("atom.global.gpu.acq_rel.add.u32", "atom.add.release.gpu.u32").
//
// It imports ptx and the standard library, nothing else.
package isa
