// Package ptx reads and writes PTX, NVIDIA's assembly language for GPUs: a
// scanner, a parser, the syntax tree, a printer and a name check.
//
// Parse accepts the syntax of PTX ISA 1.x to 9.x. It knows directives, operand
// forms and constant expressions, and it knows no instruction but call: which
// opcodes exist and which modifiers and types they take is the business of
// the instruction table (internal/isa), so that a new instruction parses and
// prints before anything understands it.
//
// Format prints a tree as text that parses to the same tree. Comments and white
// space are not kept; numbers and names keep their spelling.
//
// The input is hostile: sizes, nesting and the number of reported errors are
// bounded (see the Max constants), and nothing recurses without a limit.
//
// Source: NVIDIA, Parallel Thread Execution ISA, version 9.0; sections are
// cited by its numbering. The package imports the standard library only.
package ptx
