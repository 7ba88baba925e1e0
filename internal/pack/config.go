package pack

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// one is the whole of a device: shares are kept as fractions of it.
const one = 1 << 16

// A Config is what a Scheduler is made for. Zero values have the defaults named.
type Config struct {
	// Devices is how many GPUs there are, all alike. Default 1.
	Devices int
	// Oversubscribe is how far sums of widths and of bandwidths may go over 1. More of it leaves fewer gaps and slows
	// what is under way. 0 to 1; default 0.5. Negative: none.
	Oversubscribe float64
	// Surplus is how far tenants may go over their shares when devices cannot do everything. Who asks for little then
	// has more requests answered, since more of them fit; who has the shortest deadlines has less than its share.
	// Default 0.05. Negative: none.
	Surplus float64
	// Sure is how much of what others can cost a request at worst counts when it is admitted, beyond what the work
	// before it takes. 1, the default, keeps the promise of the package; less admits more, and some are late. Negative:
	// nothing of it.
	Sure float64
	// Patience is when a request without deadline is due. Default 1 s.
	Patience time.Duration
	// Window is how many requests a device may have outstanding. Default 512.
	Window int
	// Overdue is how many times its estimated time a part may take before it counts as a straggler. Default 4.
	Overdue float64
}

const (
	defaultOversubscribe = 0.5
	defaultSurplus       = 0.05
	defaultSure          = 1
	defaultPatience      = time.Second
	defaultWindow        = 512
	defaultOverdue       = 4
)

func (c *Config) complete() error {
	if c.Devices == 0 {
		c.Devices = 1
	}
	c.Oversubscribe = orDefault(c.Oversubscribe, defaultOversubscribe)
	c.Surplus = orDefault(c.Surplus, defaultSurplus)
	c.Sure = orDefault(c.Sure, defaultSure)
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.Overdue == 0 {
		c.Overdue = defaultOverdue
	}
	switch {
	case c.Devices < 1 || c.Devices > 1<<20:
		return fmt.Errorf("pack: %d devices", c.Devices)
	case !(c.Oversubscribe <= 1):
		return fmt.Errorf("pack: oversubscription by %v: at most 1", c.Oversubscribe)
	case !(c.Sure <= 1):
		return fmt.Errorf("pack: sure by %v: at most 1", c.Sure)
	case !(c.Surplus <= 100):
		return fmt.Errorf("pack: a surplus of %v: at most 100", c.Surplus)
	case c.Patience < 0 || c.Patience > longest:
		return fmt.Errorf("pack: patience of %v", c.Patience)
	case c.Window < 1 || c.Window > 1<<20:
		return fmt.Errorf("pack: a window of %d requests", c.Window)
	case !(c.Overdue >= 1 && c.Overdue <= 1000):
		return fmt.Errorf("pack: overdue after %v times the estimate: 1 to 1000", c.Overdue)
	}
	return nil
}

// orDefault is x, the default for 0, and 0 for what is negative.
func orDefault(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return max(0, x)
}

// A Tenant is a model and what it is promised.
type Tenant struct {
	Name string
	// SLO is the deadline of a request after its arrival. 0: none.
	SLO time.Duration
	// Weight is its share of devices that cannot do everything. Default 1.
	Weight float64
	// Instances is how many copies of its state each device has: so many of its requests may be under way there.
	// 1 to 64; default 1.
	Instances int
	// Queue is how many of its requests may be waiting, over all devices. Default 64.
	Queue int
	// Parts are what a request consists of, in order.
	Parts []Part
}

// A Part is a stretch of work that the GPU goes through by itself.
type Part struct {
	// Alone is how long it takes with the device for itself, as far as known. It is learnt.
	Alone time.Duration
	// Width is the share of the device's multiprocessors × Alone that it fills. 0: not known, and counts as 1.
	Width float64
	// Bandwidth is the same of memory bandwidth. 0: not known, and counts as Width.
	Bandwidth float64
}

const (
	maxInstances = 64
	maxParts     = 1 << 16
	longest      = time.Hour // of a part, a deadline: products with one fit into 64 bits
)

func (t *Tenant) complete() error {
	if t.Weight == 0 {
		t.Weight = 1
	}
	if t.Instances == 0 {
		t.Instances = 1
	}
	if t.Queue == 0 {
		t.Queue = 64
	}
	switch {
	case t.SLO < 0 || t.SLO > longest:
		return fmt.Errorf("pack: tenant %q: a deadline of %v", t.Name, t.SLO)
	case !(t.Weight > 0 && t.Weight <= 1e6):
		return fmt.Errorf("pack: tenant %q: a weight of %v: above 0, at most 1e6", t.Name, t.Weight)
	case t.Instances < 1 || t.Instances > maxInstances:
		return fmt.Errorf("pack: tenant %q: %d instances: 1 to %d", t.Name, t.Instances, maxInstances)
	case t.Queue < 1 || t.Queue > 1<<20:
		return fmt.Errorf("pack: tenant %q: a queue of %d requests", t.Name, t.Queue)
	case len(t.Parts) == 0 || len(t.Parts) > maxParts:
		return fmt.Errorf("pack: tenant %q: %d parts: 1 to %d", t.Name, len(t.Parts), maxParts)
	}
	var sum time.Duration
	for i, p := range t.Parts {
		if p.Alone <= 0 || p.Alone > longest {
			return fmt.Errorf("pack: tenant %q, part %d: a time of %v", t.Name, i, p.Alone)
		}
		if !isShare(p.Width) || !isShare(p.Bandwidth) {
			return fmt.Errorf("pack: tenant %q, part %d: width %v, bandwidth %v: shares are 0 to 1", t.Name, i, p.Width,
				p.Bandwidth)
		}
		sum += p.Alone
	}
	if sum > longest {
		return fmt.Errorf("pack: tenant %q: %v for one request", t.Name, sum)
	}
	return nil
}

func isShare(x float64) bool { return x >= 0 && x <= 1 }

// share turns a share into a fraction of one, upwards: what is never nothing never fits without end.
func share(x float64) int64 { return max(1, int64(math.Ceil(x*one))) }

// errGone is what a tenant that is not there any more gets.
var errGone = errors.New("pack: no such tenant")
