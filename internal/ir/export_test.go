package ir

// What tests with a front end, which are a package of their own, see of this one.
var RoundTrip = roundTrip

func Size(f *Func) int      { return f.size() }
func Serial(n *Inliner) int { return n.serial }
