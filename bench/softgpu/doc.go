// Softgpu-compare runs the same PTX on a GPU and on the software GPU and compares what both leave in memory: a
// probe for every spelling of the instruction table (internal/softgpu/probe), and the launches of the
// kernel corpus (test/corpus). See README.md.
//
// The command starts one process a job, which works with the driver; the command itself does not, so that a
// kernel that faults or hangs costs one process, not the run. Jobs read units of work, one JSON object a line, from
// their standard input and write results to their standard output.
//
// Both sides use the same addresses: a worker allocates one range of device memory and gives the software
// GPU the same range.
package main
