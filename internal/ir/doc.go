// Package ir is the form in which kernels are analysed and changed: basic blocks of
// instructions, brought into SSA form, with dominator and post-dominator trees, the loop
// nest with induction variables and trip counts, liveness, and uniformity.
//
// It knows no language that a kernel may be written in, and imports nothing of this module but the arithmetic of
// intervals. A front end makes a Module of Funcs; package fromptx is the one for PTX. An instruction says in closed
// sets what analyses may rely on: its operation (Op), the types that it works on, its accesses to memory with their
// space, bytes and time, and its attributes (rounding, order, scope, who meets at a barrier, what it reaches besides).
// Its Name is for people.
//
// A second front end, for machine code, has to do the same, and no pass will notice:
//
//   - split the code into blocks, and make a Val of each register, predicate and flag;
//   - give every instruction an Op with the arguments in the order of the Op's comment. What has no Op but only
//     computes is
//     Compute; what may do more is Other, with AnyRead and AnyWrite unless its Accesses are all that it touches.
//     Nothing may be
//     left out: an analysis takes what is not said for what does not happen;
//   - describe special registers as Register does: who has the same value, whether it changes, what it depends on;
//   - give parameters, constants banks and frames as Vars, so that an address of one is a Symbol;
//   - say what a kernel demands of its launches (Limits), and which functions never return (Module.NoReturn).
//
// Check says what is wrong with a function, Format prints it, Read reads it back: a front end is tested with the three.
//
// Predicates are guards: an instruction with a guard has no effect in threads for which it
// is false. In SSA form such an instruction lists in Else the values that its
// results have then, so that it is an ordinary definition to everything that does not care.
//
// Analyse runs the passes of one table, whose order is constrained by a second one and
// checked before the first pass. docs/ir.md explains all of it with one worked kernel.
//
// Every pass is deterministic. Passes are linear or nearly so; those whose result may be larger
// than the function stop with a TooLargeError. Nothing recurses over the input but
// the nesting of blocks in PTX, which its parser bounds.
//
// The files:
//
//	ir.go         modules, functions, blocks, instructions; attribute.go, what these have beside their operation
//	cfg.go        order; dom.go, dominators; ssa.go, SSA form; live.go, liveness; loops.go, the loop nest
//	induction.go  induction variables and trip counts; range.go, bounds of values; uniform.go, which threads agree
//	inline.go     functions put where they are called; promote.go, local memory made registers
//	pass.go       the table of passes; check.go, what must hold between them
//	print.go      the text form; read.go, from text
package ir
