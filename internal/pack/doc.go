// Package pack decides which tenant's work a GPU does next, and which work it takes at all.
//
// A tenant is a recorded model, a request one replay of it. A request is a sequence of parts: stretches of the
// recording that the GPU goes through by itself once they are started. Parts of one request run in order; those of
// different requests run side by side and share multiprocessors and bandwidth. Parts of the same model are no special
// case.
//
// # Use
//
// The package has no clock, no goroutine and no device: moments come in, as time since any start, and must not go
// back. One goroutine calls it:
//
//	s, err := pack.New(pack.Config{Devices: 1})
//	resnet, err := s.Add(pack.Tenant{Name: "resnet", SLO: 20 * time.Millisecond, Parts: parts})
//	for {
//		for each request that came in {
//			id, refusal := s.Arrive(now(), resnet, 0)
//			if refusal != pack.Admitted { answer 429 with refusal.String() }
//		}
//		for each part that is complete { s.Done(now(), id, took) }
//		starts = s.Issue(now(), starts[:0])
//		for each of starts { start it }
//		now and then { slow = s.Overdue(now(), slow[:0]) }
//	}
//
// The same input gives the same decisions. Nothing is allocated once as many requests have been outstanding as ever
// will be.
//
// # What a device is taken for
//
// A part has a width and a bandwidth: the shares of the device's multiprocessors and of its memory bandwidth that it
// would fill alone. While neither adds up to more than one, parts under way do not disturb each other; otherwise all
// are slowed by the larger sum (processor sharing). This is a model. What the hardware does differently is learnt for
// each part, as a factor on its time beside others, apart from its time alone. Width and bandwidth are not learnt.
//
// # Order
//
// Each device goes by earliest deadline first. A part starts if the sums of widths and bandwidths stay within
// 1 + Oversubscribe with it; if the most urgent part that is ready does not fit, nothing less urgent starts, so that
// it waits for parts under way and for nothing else. Parts are bound to their start late, requests to a device when
// they are admitted, because that is where their state will be.
//
// A request without deadline has one for this order, Patience after its arrival, and is admitted against it like any
// other: it starves for Patience at most, in the sense of the promise below. One that cannot make its deadline any
// more, or whose part is overdue, gives way to others in the same manner: it counts as if it were due Patience later.
//
// # The promise
//
// A request is admitted if this holds for it, and stays true for those admitted before it, by what is known:
//
//	now + P/r + X + s·(C + A/k)  ≤  its deadline
//
//	P  work (time alone × the larger of width and bandwidth) of more urgent requests on the device
//	r  the least that the device does while the request waits: min(1, 1 + Oversubscribe − its largest share)
//	X  the wait for less urgent parts under way: at its start, and wherever a part is wider than the one before it
//	s  the slow-down, 1 + Oversubscribe
//	C  its own parts one after the other
//	A  the same, and what X is to them, of requests of its tenant before it, if it must wait for one of k instances
//
// It is Graham's bound for list scheduling. While the request waits, the device does work of P or X at a rate of r at
// least; otherwise the request runs, slowed by s at most. So an admitted request meets its deadline if (1) parts take
// alone what is estimated and devices behave as above, (2) Done and Issue are called at once, (3) nothing more urgent
// is admitted to its device after it, and (4) deadlines of its tenant come in order. Without (3) its deadline is
// checked again at each admission, but what X can cost it once more is not.
//
// All but P and C is what can happen at worst. Config.Sure counts a part of it, and then the promise is none.
//
// A request that does not pass is tried as a tight one: it counts as wide as its widest part, plus Oversubscribe,
// all the time. Then it neither waits after its start nor is slowed: s is 1, but others have less room.
//
// # Shares
//
// If tenants offer more than the devices can do, the capacity is divided between them: max-min fair by weight, over
// what each offered recently. A tenant that offers more than its share is held to it by a token bucket; who offers
// less notices nothing of the flood but parts under way, and what Config.Surplus allows.
//
// Papers: Liu and Layland 1973 (EDF); Graham 1969 (the bound); Jain et al., "The OoO VLIW JIT Compiler for GPU
// Inference" (2019). The package must not import anything of this module.
package pack
