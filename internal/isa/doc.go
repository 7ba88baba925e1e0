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
// The files:
//
//	table.go    the forms of every opcode: modifiers, types, operands; types.go, the words in it
//	meaning.go  what instructions do beyond their class: operation, accesses, who takes part, how they leave
//	special.go  special registers: type, who has the same value, what it depends on, the largest value
//	decode.go   one parsed instruction matched with the forms; spell.go, all spellings of a form
//
// Whoever needs to know what an instruction does asks Inst.Means; of one in a form that the table does not hold,
// OutlineOf says what holds for all forms of its opcode, and everything else is unknown. A test in internal/layout
// finds code that asks for a mnemonic.
//
// It imports ptx and the standard library, nothing else.
package isa
