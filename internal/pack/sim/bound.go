package sim

import (
	"cmp"
	"math"
	"slices"
)

// bound is an upper bound of how many requests any policy can answer in time, one that knows all arrivals and
// durations included.
//
// It is the optimum of a relaxation. A request needs time alone × width of multiprocessors, and time alone × bandwidth
// of bandwidth, between its arrival and its deadline. Of each there is one per GPU and moment, and so there is of any
// mixture of both. The relaxation forgets everything else: that parts have an order, that a request is on one GPU, that
// it proceeds no faster than alone, that a part under way stays, instances and overheads. And a request of which only a
// share of the work is done counts as that share. Whatever a policy does on the GPUs of this package is allowed here
// and counts the same, so nothing beats it. Requests that could not make their deadline alone are left out, and so is
// the work of requests without one.
//
// The optimum: the amounts of work that can be done within all windows at once form a polymatroid, being flows from
// requests through moments. So the greedy algorithm is exact: requests with the least work first, which count most for
// it. What a set of requests can have done altogether is what earliest deadline first does with it on a fluid machine
// (Glover 1967, for convex bipartite graphs). Work is put into classes whose members differ little, and each counts as
// the smallest: that makes the bound greater. The least bound over five mixtures is taken.
func (l *load) bound() float64 {
	least := math.Inf(1)
	for mixture := int64(0); mixture <= 4; mixture++ {
		least = min(least, l.mixed(mixture*one/4))
	}
	return least
}

type window struct {
	at, deadline int64 // in ns / GPUs, as one GPU's time
	work         int64
	class        int
}

// mixed is the bound of one mixture: bandwidth counts for share, of one, width for the rest.
func (l *load) mixed(share int64) float64 {
	jobs := l.windows(share)
	if len(jobs) == 0 {
		return 0
	}
	least := classes(jobs)
	var best float64
	var before int64
	pick := make([]window, 0, len(jobs))
	for class, work := range least {
		pick = pick[:0]
		for _, j := range jobs {
			if j.class <= class {
				pick = append(pick, j)
			}
		}
		all := fluid(pick)
		best += float64(all-before) / float64(work)
		before = all
	}
	return min(best, float64(len(jobs)))
}

// windows are the requests that count, in the order of arrival.
func (l *load) windows(share int64) []window {
	gpus := int64(l.config.GPUs)
	var jobs []window
	for i, a := range l.arrivals {
		t := &l.tenants[a.tenant]
		if t.slo == 0 {
			continue
		}
		var crit, work int64
		for k, p := range t.parts {
			d := l.duration(int32(i), a.tenant, int32(k))
			crit += d
			work += scale(d, (p.w*(one-share)+p.b*share)/one, one)
		}
		if crit <= t.slo {
			jobs = append(jobs, window{at: a.at * gpus, deadline: (a.at + t.slo) * gpus, work: max(1, work)})
		}
	}
	return jobs
}

// classes puts jobs of about the same work together, and returns the least work of each class, upwards.
func classes(jobs []window) []int64 {
	order := make([]int32, len(jobs))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(jobs[a].work, jobs[b].work) })
	step := 1.01
	if len(jobs) > 50_000 {
		step = 1.05
	}
	var least []int64
	for _, i := range order {
		if n := len(least); n == 0 || float64(jobs[i].work) > float64(least[n-1])*step {
			least = append(least, jobs[i].work)
		}
		jobs[i].class = len(least) - 1
	}
	return least
}

// fluid is how much of the jobs' work, given in the order of arrival, can be done altogether.
func fluid(jobs []window) int64 {
	var heap []window // by deadline
	var now, done int64
	for i := 0; i < len(jobs) || len(heap) > 0; {
		if len(heap) == 0 {
			now = max(now, jobs[i].at)
		}
		for i < len(jobs) && jobs[i].at <= now {
			heap = push(heap, jobs[i])
			i++
		}
		until := int64(math.MaxInt64)
		if i < len(jobs) {
			until = jobs[i].at
		}
		for len(heap) > 0 && now < until {
			j := &heap[0]
			n := min(j.work, j.deadline-now, until-now)
			if n > 0 {
				now, done, j.work = now+n, done+n, j.work-n
			}
			if j.work == 0 || now >= j.deadline {
				heap = pop(heap)
			}
		}
	}
	return done
}

func push(heap []window, w window) []window {
	heap = append(heap, w)
	for i := len(heap) - 1; i > 0 && heap[i].deadline < heap[(i-1)/2].deadline; i = (i - 1) / 2 {
		heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
	}
	return heap
}

func pop(heap []window) []window {
	n := len(heap) - 1
	heap[0] = heap[n]
	heap = heap[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < n && heap[c+1].deadline < heap[c].deadline {
			c++
		}
		if c >= n || heap[c].deadline >= heap[i].deadline {
			return heap
		}
		heap[i], heap[c] = heap[c], heap[i]
		i = c
	}
}
