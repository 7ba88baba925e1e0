// Package machine runs on GPUs what package pack decides: it is the goroutine that asks the scheduler, starts parts,
// sees that they are complete, and hands answers back.
//
// A tenant is a recording on one or more address spaces of its own ([engine.Sharer]), one for each of its requests that
// may be under way at once. Nothing of one can name the memory of another. Inputs and outputs are memory of the host
// that the GPU reads and writes, so a request needs nothing of the driver.
//
// When a tenant is added its words are timed on the GPU, one by one, and cut into parts of at most Config.Longest where
// its words allow that: so long does an urgent request wait for each other at most.
//
// # Failures
//
// The work of all address spaces ends when one fails, or when a part does not end. Memory stays as it was left. The
// machine makes the channels anew and does each request that was under way again, from its beginning and alone, in
// memory as the recording has it: the one that fails again is the guilty one, gets the error, and its tenant takes no
// more requests; the others get their answers, late. A tenant whose requests build on what earlier ones left
// ([Spec.Keep]) cannot be done again: its request ends with an error, and it goes on from the recording's memory.
//
// The package must not import anything of this module but pack and engine.
package machine
