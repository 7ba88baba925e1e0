// Package image is a checkpoint on disk: a directory that holds the manifest, the chunks of device memory, CRIU's files
// and the libraries that the program has mapped. The format is stated in docs/image-format.md.
//
// A [Writer] fills a partial directory and renames it into place as the last step, when everything is durable, so that
// a directory with a manifest is complete and a crash leaves no image at all. [Open] believes nothing: it checks the
// manifest's own sum and every number in it before it returns, reads no file through a symbolic link, and refuses
// what belongs to another user; [OpenForeign] takes that too, if all of it is that one user's.
//
// Chunks are shared between the images of one parent directory (package store). It imports store, digest and owned and
// no other of holdfast: images are listed, verified and moved on machines that have no GPU.
package image
