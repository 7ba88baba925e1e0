// Package fromptx makes the form that kernels are analysed in (package ir) from PTX. What it makes of the language:
//
//   - a register is a value before SSA form; a component of a vector register, and the
//     carry flag that add.cc and its like leave, are registers of their own;
//   - vectors and pairs of operands are lists of results or arguments, in order;
//   - parameters are variables in the space param, also those of calls; a call reads and
//     writes those that it names;
//   - what an instruction does is what the instruction table (package isa) says: this package asks for no opcode, and
//     only
//     translates the table's words. A test in internal/layout sees to it;
//   - an instruction whose form the table does not hold may read and write all the
//     registers it names, and all memory, unless the table says of its opcode that no form of it touches more than
//     shared memory.
//
// The files: fromptx.go, modules and functions; flow.go, blocks and calls; inst.go, instructions; operand.go,
// registers, variables and constants.
package fromptx
