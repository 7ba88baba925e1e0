package ir

// A Logic combines two predicates.
type Logic uint8

// The combinations.
const (
	NoLogic Logic = iota
	BothHold
	OneHolds
	OnlyOneHolds
)

// A Rounding says how a floating-point result is rounded.
type Rounding uint8

// The ways to round. Those to an integer are of conversions.
const (
	RoundUnsaid Rounding = iota // to nearest, if at all; a product may be rounded together with a sum that follows
	Nearest
	TowardZero
	Down
	Up
	NearestAway
	Randomly
	NearestInteger
	Truncate
	Floor
	Ceiling
)

// A Variant is bits that say how an operation differs from the plain one.
type Variant uint8

// The variants.
const (
	Flushes    Variant = 1 << iota // subnormal arguments and results are 0
	KeepsNaN                       // of Min and Max: no number, if an argument is none
	Magnitudes                     // of Min and Max: of absolute values
	SignXor                        // of Min and Max: the sign is the exclusive or of the arguments'
	Unordered                      // of Compare: it holds as well if an argument is no number
	Wraps                          // of funnel shifts: the distance is modulo 32, else 32 at most
)

// An Update is what an atomic operation makes of the old value and its argument.
type Update uint8

// The updates.
const (
	NoUpdate Update = iota // another one
	Exchange
	CompareExchange
	Sum
	Least
	Greatest
	Conjunction
	Disjunction
	ExclusiveOr
	Increment // up to a limit, then 0
	Decrement // down to 0, then a limit
)

// An Order is how an access or a fence is ordered with others.
type Order uint8

// The orders.
const (
	Weak Order = iota
	Volatile
	Relaxed
	Acquire
	Release
	AcquireRelease
	SequentiallyConsistent
	MemoryMapped
)

// A Scope is the threads that an order holds among.
type Scope uint8

// The scopes.
const (
	NoScope Scope = iota
	BlockScope
	ClusterScope
	DeviceScope
	SystemScope // other devices, and the host
)

// A Meeting is what a thread does at a barrier.
type Meeting struct {
	Among   Group
	Arrives bool // it is counted
	Waits   bool // it goes on only when all have come
	Counted bool // an argument says how many threads that is; else they are all of the group
}

// A Group is who meets at a barrier. A block has several barriers; the first argument is the number of one.
type Group uint8

// The groups.
const (
	NoGroup Group = iota
	WarpGroup
	BlockGroup
	ClusterGroup
)

// Reach is what an instruction touches that is neither a register nor at the address of an Access.
type Reach uint8

// What else is touched.
const (
	NoReach    Reach = iota
	Textures         // textures and surfaces
	TensorMaps       // memory that a tensor map describes, or the map
	Devices          // memory of other devices
	Grids            // the grid before this one, or the one behind it
)

// A Register is a special register: the hardware writes it.
type Register struct {
	Name  string // for people
	Is    Coordinate
	Dim   uint8 // of Is: 0 to 2
	Type  Type
	Same  Level // which threads surely have the same value
	Fixed bool  // it does not change while the thread runs
	From  Source
	Max   int64 // 0 = not known
}

// A Coordinate says where a thread is, or how much was launched.
type Coordinate uint8

// The coordinates. Those above Lane have three dimensions.
const (
	NoCoordinate   Coordinate = iota
	ThreadIndex               // in its block
	BlockSize                 // in threads
	BlockIndex                // in the grid
	GridSize                  // in blocks
	ClusterIndex              // in the grid
	GridClusters              // in clusters
	IndexInCluster            // of the block
	ClusterSize               // in blocks
	Lane                      // of the thread in its warp
	RankInCluster             // of the block
	ClusterBlocks             // how many there are
	DynamicShared             // bytes
)

// A Source says what the value of a register depends on.
type Source uint8

// What values depend on.
const (
	FromLaunch  Source = iota // and the place of the thread in it
	FromMachine               // another launch of the same kind may see another value
	FromDriver                // what the driver puts there
)

var (
	logicNames    = [...]string{"", "both", "one", "onlyone"}
	roundingNames = [...]string{"", "nearest", "towardzero", "down", "up", "nearestaway", "randomly",
		"nearestinteger", "truncate", "floor", "ceiling"}
	variantNames = [...]string{"flushes", "keepsnan", "magnitudes", "signxor", "unordered", "wraps"}
	updateNames  = [...]string{"", "exchange", "compareexchange", "sum", "least", "greatest", "conjunction",
		"disjunction", "exclusiveor",
		"increment", "decrement"}
	orderNames = [...]string{"", "volatile", "relaxed", "acquire", "release", "acquirerelease", "consistent",
		"mapped"}
	scopeNames      = [...]string{"", "inblock", "incluster", "ondevice", "insystem"}
	groupNames      = [...]string{"", "ofwarp", "ofblock", "ofcluster"}
	meetingNames    = [...]string{"arrives", "waits", "counted"}
	reachNames      = [...]string{"", "textures", "tensormaps", "devices", "grids"}
	coordinateNames = [...]string{"", "threadindex", "blocksize", "blockindex", "gridsize", "clusterindex",
		"gridclusters", "indexincluster",
		"clustersize", "lane", "rankincluster", "clusterblocks", "dynamicshared"}
	sourceNames = [...]string{"launch", "machine", "driver"}
)

// attributes are the words for what an instruction has beside its operation, in the order in which they are printed.
func (in *Inst) attributes() []string {
	var list []string
	add := func(w string) {
		if w != "" {
			list = append(list, w)
		}
	}
	add(logicNames[in.Logic])
	add(roundingNames[in.Round])
	for i, w := range variantNames {
		if in.Variant&(1<<i) != 0 {
			add(w)
		}
	}
	add(updateNames[in.Update])
	add(orderNames[in.Order])
	add(scopeNames[in.Scope])
	add(groupNames[in.Barrier.Among])
	for i, has := range in.Barrier.words() {
		if *has {
			add(meetingNames[i])
		}
	}
	add(reachNames[in.Reach])
	return list
}

func (m *Meeting) words() [3]*bool { return [3]*bool{&m.Arrives, &m.Waits, &m.Counted} }

// setAttribute is the inverse of attributes, for one word. It reports whether there is such a word.
func (in *Inst) setAttribute(word string) bool {
	set, ok := attributeOf[word]
	if ok {
		set(in)
	}
	return ok
}

// attributeOf is what each word sets. No two of them are the same: a test says so.
var attributeOf = func() map[string]func(*Inst) {
	m := map[string]func(*Inst){}
	for i, w := range logicNames {
		m[w] = func(in *Inst) { in.Logic = Logic(i) }
	}
	for i, w := range roundingNames {
		m[w] = func(in *Inst) { in.Round = Rounding(i) }
	}
	for i, w := range variantNames {
		m[w] = func(in *Inst) { in.Variant |= 1 << i }
	}
	for i, w := range updateNames {
		m[w] = func(in *Inst) { in.Update = Update(i) }
	}
	for i, w := range orderNames {
		m[w] = func(in *Inst) { in.Order = Order(i) }
	}
	for i, w := range scopeNames {
		m[w] = func(in *Inst) { in.Scope = Scope(i) }
	}
	for i, w := range groupNames {
		m[w] = func(in *Inst) { in.Barrier.Among = Group(i) }
	}
	for i, w := range meetingNames {
		m[w] = func(in *Inst) { *in.Barrier.words()[i] = true }
	}
	for i, w := range reachNames {
		m[w] = func(in *Inst) { in.Reach = Reach(i) }
	}
	delete(m, "")
	return m
}()
