package isa

// table is the instruction set. One line is one form:
//
//	opcode | class | modifiers | operands
//
// A modifier is a flag ("ftz"), a slot with alternatives ("rnd=rn|rz"), or
// "flag" for flags that exclude each other, "cache" for alternatives whose choice
// changes nothing that a program can compute; "-" is none; "?" makes it optional, "$x" is a macro. An operand is d (written),
// a (read), m (memory), L (label), T (target list); ":u" takes its type from the
// second type of the instruction, ":b32" fixes it, ":wide" is the first, twice as wide; otherwise it is the first. An
// x is a register that is read and written. What the instructions do is in meaning.go.
const table = `
abs | arith | t=s16|s32|s64 | d a
abs | arith | ftz? t=f32|f16|f16x2|bf16|bf16x2 | d a
abs | arith | t=f64 | d a
neg | arith | t=s16|s32|s64 | d a
neg | arith | ftz? t=f32|f16|f16x2|bf16|bf16x2 | d a
neg | arith | t=f64 | d a
add | arith | t=$int|u16x2|s16x2 | d a a
add | arith | sat t=s32 | d a a
add | arith | cc t=u32|s32|u64|s64 | d a a
add | arith | rnd=$round? ftz? sat? t=f32 | d a a
add | arith | rnd=$round? sat? t=f32 u=f16|bf16 | d a:u a
add | arith | rnd=$round? ftz? t=f32x2 | d a a
add | arith | rnd=$round? t=f64 | d a a
add | arith | rnd=rn? ftz? sat? t=f16|f16x2 | d a a
add | arith | rnd=rn? t=bf16|bf16x2 | d a a
addc | arith | cc? t=u32|s32|u64|s64 | d a a
sub | arith | t=$int|u16x2|s16x2 | d a a
sub | arith | sat t=s32 | d a a
sub | arith | cc t=u32|s32|u64|s64 | d a a
sub | arith | rnd=$round? ftz? sat? t=f32 | d a a
sub | arith | rnd=$round? sat? t=f32 u=f16|bf16 | d a:u a
sub | arith | rnd=$round? ftz? t=f32x2 | d a a
sub | arith | rnd=$round? t=f64 | d a a
sub | arith | rnd=rn? ftz? sat? t=f16|f16x2 | d a a
sub | arith | rnd=rn? t=bf16|bf16x2 | d a a
subc | arith | cc? t=u32|s32|u64|s64 | d a a
mul | arith | mode=lo|hi? t=$int | d a a
mul | arith | mode=wide t=u16|s16|u32|s32 | d:wide a a
mul | arith | rnd=$round? ftz? sat? t=f32 | d a a
mul | arith | rnd=$round? ftz? t=f32x2 | d a a
mul | arith | rnd=$round? t=f64 | d a a
mul | arith | rnd=rn? ftz? sat? t=f16|f16x2 | d a a
mul | arith | rnd=rn? t=bf16|bf16x2 | d a a
mad | arith | mode=lo|hi t=$int | d a a a
mad | arith | mode=wide t=u16|s16|u32|s32 | d:wide a a a:wide
mad | arith | mode=hi sat t=s32 | d a a a
mad | arith | mode=lo|hi cc t=u32|s32|u64|s64 | d a a a
mad | arith | rnd=$round? ftz? sat? t=f32 | d a a a
mad | arith | rnd=$round? t=f64 | d a a a
madc | arith | mode=lo|hi cc? t=u32|s32|u64|s64 | d a a a
mul24 | arith | mode=lo|hi t=u32|s32 | d a a
mad24 | arith | mode=lo|hi sat? t=u32|s32 | d a a a
fma | arith | rnd=$round? ftz? sat? t=f32 | d a a a
fma | arith | rnd=$round? sat? t=f32 u=f16|bf16 | d a:u a:u a
fma | arith | rnd=$round? ftz? t=f32x2 | d a a a
fma | arith | rnd=$round t=f64 | d a a a
fma | arith | rnd=rn ftz? sat? relu? t=f16|f16x2 | d a a a
fma | arith | rnd=rn relu? t=bf16|bf16x2 | d a a a
fma | arith | rnd=rn oob relu? t=f16|f16x2|bf16|bf16x2 | d a a a
div | arith | t=$int | d a a
div | arith | flag=approx|full? rnd=$round? ftz? t=f32 | d a a
div | arith | rnd=$round t=f64 | d a a
rem | arith | t=$int | d a a
sad | arith | t=$int | d a a a
min | arith | t=$int|u16x2|s16x2 | d a a
min | arith | relu t=s32|s16x2 | d a a
min | arith | ftz? NaN? xorsign? abs? t=f32 | d a a
min | arith | ftz? NaN? abs? t=f32 | d a a a
min | arith | t=f64 | d a a
min | arith | ftz? NaN? xorsign? abs? t=f16|f16x2|bf16|bf16x2 | d a a
max | arith | t=$int|u16x2|s16x2 | d a a
max | arith | relu t=s32|s16x2 | d a a
max | arith | ftz? NaN? xorsign? abs? t=f32 | d a a
max | arith | ftz? NaN? abs? t=f32 | d a a a
max | arith | t=f64 | d a a
max | arith | ftz? NaN? xorsign? abs? t=f16|f16x2|bf16|bf16x2 | d a a
popc | arith | t=b32|b64 | d:u32 a
clz | arith | t=b32|b64 | d:u32 a
brev | arith | t=b32|b64 | d a
bfind | arith | mode=shiftamt? t=u32|u64|s32|s64 | d:u32 a
fns | arith | t=b32 | d a a a:s32
bfe | arith | t=u32|u64|s32|s64 | d a a:u32 a:u32
bfi | arith | t=b32|b64 | d a a a:u32 a:u32
szext | arith | mode=clamp|wrap t=u32|s32 | d a a:u32
bmsk | arith | mode=clamp|wrap t=b32 | d a a:u32
dp4a | arith | t=u32|s32 u=u32|s32 | d:b32 a:b32 a:b32 a:b32
dp2a | arith | mode=lo|hi t=u32|s32 u=u32|s32 | d:b32 a:b32 a:b32 a:b32
clmad | arith | mode=lo|hi t=u64 | d a a a
rcp | arith | approx? rnd=$round? ftz? t=f32 | d a
rcp | arith | approx? rnd=$round? ftz? t=f64 | d a
sqrt | arith | approx? rnd=$round? ftz? t=f32 | d a
sqrt | arith | rnd=$round t=f64 | d a
rsqrt | arith | approx ftz? t=f32|f64 | d a
sin | arith | approx ftz? t=f32 | d a
cos | arith | approx ftz? t=f32 | d a
lg2 | arith | approx ftz? t=f32 | d a
ex2 | arith | approx ftz? t=f32|f16|f16x2|bf16|bf16x2 | d a
tanh | arith | approx t=f32|f16|f16x2|bf16|bf16x2 | d a
copysign | arith | t=f32|f64 | d a a
testp | compare | fn=finite|infinite|number|notanumber|normal|subnormal t=f32|f64 | d:pred a
and | arith | t=$bits|pred | d a a
or | arith | t=$bits|pred | d a a
xor | arith | t=$bits|pred | d a a
not | arith | t=$bits|pred | d a
cnot | arith | t=$bits | d a
lop3 | arith | t=b32 | d a a a a:u32
lop3 | arith | bool=and|or t=b32 | d a a a a:u32 a:pred
shl | arith | t=$bits | d a a:u32
shr | arith | t=$int|b16|b32|b64 | d a a:u32
shf | arith | mode=l|r mode2=clamp|wrap t=b32 | d a a a:u32
prmt | arith | mode=f4e|b4e|rc8|ecl|ecr|rc16? t=b32 | d a a a
setp | compare | cmp=eq|ne t=b16|b32|b64 | d:pred a a
setp | compare | cmp=$cmps t=s16|s32|s64 | d:pred a a
setp | compare | cmp=$cmpi t=u16|u32|u64 | d:pred a a
setp | compare | cmp=eq|ne bool=$bool t=b16|b32|b64 | d:pred a a a:pred
setp | compare | cmp=$cmps bool=$bool t=s16|s32|s64 | d:pred a a a:pred
setp | compare | cmp=$cmpi bool=$bool t=u16|u32|u64 | d:pred a a a:pred
setp | compare | cmp=$cmpf ftz? t=f32|f16|f16x2 | d:pred a a
setp | compare | cmp=$cmpf bool=$bool ftz? t=f32|f16|f16x2 | d:pred a a a:pred
setp | compare | cmp=$cmpf t=f64|bf16|bf16x2 | d:pred a a
setp | compare | cmp=$cmpf bool=$bool t=f64|bf16|bf16x2 | d:pred a a a:pred
set | compare | cmp=eq|ne t=u32|s32|f32 u=b16|b32|b64 | d a:u a:u
set | compare | cmp=$cmps t=u32|s32|f32 u=s16|s32|s64 | d a:u a:u
set | compare | cmp=$cmpi t=u32|s32|f32 u=u16|u32|u64 | d a:u a:u
set | compare | cmp=$cmpf ftz? t=u32|s32|f32 u=f32|f64 | d a:u a:u
set | compare | cmp=$cmpf ftz? t=f16 u=f32|f64|f16 | d a:u a:u
set | compare | cmp=$cmpf t=bf16 u=f32|f64|bf16 | d a:u a:u
set | compare | cmp=$cmps t=f16|bf16 u=$int | d a:u a:u
set | compare | cmp=$cmpf ftz? t=u16|s16|u32|s32 u=f16 | d a:u a:u
set | compare | cmp=$cmpf t=u16|s16|u32|s32 u=bf16 | d a:u a:u
set | compare | cmp=$cmpf ftz? t=f16x2|u32|s32 u=f16x2 | d a:u a:u
set | compare | cmp=$cmpf t=bf16x2|u32|s32 u=bf16x2 | d a:u a:u
set | compare | cmp=eq|ne bool=$bool t=u32|s32|f32 u=b16|b32|b64 | d a:u a:u a:pred
set | compare | cmp=$cmps bool=$bool t=u32|s32|f32 u=s16|s32|s64 | d a:u a:u a:pred
set | compare | cmp=$cmpi bool=$bool t=u32|s32|f32 u=u16|u32|u64 | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool ftz? t=u32|s32|f32 u=f32|f64 | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool ftz? t=f16 u=f32|f64|f16 | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool t=bf16 u=f32|f64|bf16 | d a:u a:u a:pred
set | compare | cmp=$cmps bool=$bool t=f16|bf16 u=$int | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool ftz? t=u16|s16|u32|s32 u=f16 | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool t=u16|s16|u32|s32 u=bf16 | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool ftz? t=f16x2|u32|s32 u=f16x2 | d a:u a:u a:pred
set | compare | cmp=$cmpf bool=$bool t=bf16x2|u32|s32 u=bf16x2 | d a:u a:u a:pred
selp | move | t=$int|$bits|f32|f64|f16|bf16|f16x2|bf16x2 | d a a a:pred
slct | move | t=$int|$bits|f32|f64 u=s32 | d a a a:u
slct | move | ftz? t=$int|$bits|f32|f64 u=f32 | d a a a:u
mov | move | t=$int|$bits|b128|f32|f64|pred|f16|bf16|f16x2|bf16x2 | d a
mov | move | vec=v2 t=$int|$bits|f32|f64|f16|bf16|f16x2|bf16x2 | d a
mov | move | vec=v4 t=u16|u32|s16|s32|b16|b32|f32|f16|bf16|f16x2|bf16x2 | d a
cvta | move | to? ss=$space t=u32|u64 | d a
isspacep | compare | ss=$space | d:pred a:b64
istypep | special | fn=texref|samplerref|surfref | d:pred a:b64
cvt | convert | sat? t=u8|u16|u32|u64|s8|s16|s32|s64 u=u8|u16|u32|u64|s8|s16|s32|s64 | d a:u
cvt | convert | rnd=rni|rzi|rmi|rpi ftz? sat? t=u8|u16|u32|u64|s8|s16|s32|s64 u=f16|bf16|f32|f64 | d a:u
cvt | convert | rnd=rn|rz|rm|rp ftz? sat? t=f16|bf16|f32|f64 u=u8|u16|u32|u64|s8|s16|s32|s64 | d a:u
cvt | convert | rnd=rn|rz|rm|rp|rna|rni|rzi|rmi|rpi? ftz? sat? t=f16|bf16|f32|f64 u=f16|bf16|f32|f64 | d a:u
cvt | convert | rnd=rn|rz ftz? relu? satfinite? t=bf16|f16 u=f32 | d a:u
cvt | convert | rnd=rn|rz|rs relu? satfinite? t=f16x2|bf16x2 u=f32 | d a:u a:u a:b32?
cvt | convert | rnd=rna|rn|rz relu? satfinite? t=tf32 u=f32 | d a:u
cvt | convert | rnd=rn satfinite relu? t=$packed8 u=f32 | d a:u a:u
cvt | convert | rnd=rn satfinite relu? t=$packed8 u=f16x2|bf16x2 | d a:u
cvt | convert | rnd=rn relu? t=f16x2|bf16x2 u=$packed8 | d a:u
cvt | convert | rnd=rs satfinite relu? t=e4m3x4|e5m2x4|e2m1x4|e2m3x4|e3m2x4 u=f32 | d a:u a:b32
cvt | convert | rnd=rz|rp satfinite? t=ue8m0x2 u=f32 | d a:u a:u
cvt | convert | rnd=rz|rp satfinite? t=ue8m0x2 u=bf16x2 | d a:u
cvt | convert | rnd=rn t=bf16x2 u=ue8m0x2 | d a:u
cvt.pack | convert | sat t=u16|s16 u=s32 | d:b32 a:u a:u
cvt.pack | convert | sat t=u8|s8|u4|s4|u2|s2 u=s32 v=b32 | d:b32 a:u a:u a:v
ld | load | sem=weak|volatile|relaxed|acquire|mmio? sem2=relaxed? scope=$scope? ss=$space? nc? cache=$cop? cache=$evict1? cache=$evict2? cache=L2::cache_hint? cache=$fetch? unified? vec=v2|v4|v8? t=$memt | d m a:b64?
ldu | load | ss=global? vec=v2|v4? t=$memt | d m
st | store | sem=weak|volatile|relaxed|release|mmio? sem2=relaxed? scope=$scope? ss=global|local|param|param::func|shared|shared::cta|shared::cluster? cache=$cop? cache=$evict1? cache=$evict2? cache=L2::cache_hint? vec=v2|v4|v8? t=$memt | m a a:b64?
prefetch | prefetch | ss=global|local? cache=L1|L2 | m
prefetch | prefetch | ss=global? cache=L2::evict_last|L2::evict_normal | m
prefetch | prefetch | ss=const|param? mode=tensormap | m
prefetchu | prefetch | cache=L1 | m
applypriority | prefetch | ss=global? cache=L2::evict_normal | m a:u32
discard | prefetch | ss=global? cache=L2 | m a:u32
createpolicy | prefetch | mode=fractional cache=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged cache=L2::evict_first|L2::evict_unchanged? t=b64 | d a:f32?
createpolicy | prefetch | mode=range ss=global? cache=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged cache=L2::evict_first|L2::evict_unchanged? t=b64 | d m a:u32 a:u32
createpolicy.cvt | prefetch | mode=L2 t=b64 | d a
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=and|or|xor cache=L2::cache_hint? t=b32|b64 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=exch cache=L2::cache_hint? t=b32|b64|b128 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=add cache=L2::cache_hint? t=u32|s32|u64|s64|f32|f64 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=add noftz cache=L2::cache_hint? t=f16|f16x2|bf16|bf16x2 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=inc|dec cache=L2::cache_hint? t=u32 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=min|max cache=L2::cache_hint? t=u32|s32|u64|s64 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=global? fn=add cache=L2::cache_hint? vec=v2|v4 t=f32 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=global? fn=add|min|max noftz cache=L2::cache_hint? vec=v2|v4|v8 t=f16|f16x2|bf16|bf16x2 | d m a a:b64?
atom | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=cas cache=L2::cache_hint? t=b16|b32|b64|b128|u32|u64|s32|s64 | d m a a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=and|or|xor cache=L2::cache_hint? t=b32|b64 | m a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=add cache=L2::cache_hint? t=u32|s32|u64|s64|f32|f64 | m a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=add noftz cache=L2::cache_hint? t=f16|f16x2|bf16|bf16x2 | m a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=inc|dec cache=L2::cache_hint? t=u32 | m a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=$ashared? fn=min|max cache=L2::cache_hint? t=u32|s32|u64|s64 | m a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=global? fn=add cache=L2::cache_hint? vec=v2|v4 t=f32 | m a a:b64?
red | atomic | sem=$sem? scope=$scope? ss=global? fn=add|min|max noftz cache=L2::cache_hint? vec=v2|v4|v8 t=f16|f16x2|bf16|bf16x2 | m a a:b64?
membar | fence | scope=cta|gl|sys|gpu |
membar.proxy | fence | ss=alias|async | 
fence | fence | sem=sc|acq_rel|acquire|release? scope=$scope |
fence.mbarrier_init | fence | sem=release scope=cluster |
fence.proxy | fence | mode=alias|async|async.global|async.shared::cta|async.shared::cluster |
fence.proxy | fence | mode=async ss=global|shared::cta|shared::cluster? |
bar | barrier | scope=cta? mode=sync aligned? | a:u32 a:u32?
bar | barrier | scope=cta? mode=arrive aligned? | a:u32 a:u32
bar | barrier | scope=cta? mode=red aligned? fn=popc t=u32 | d a:u32 a:u32? a:pred
bar | barrier | scope=cta? mode=red aligned? fn=and|or t=pred | d a:u32 a:u32? a:pred
barrier | barrier | scope=cta? mode=sync aligned? | a:u32 a:u32?
barrier | barrier | scope=cta? mode=arrive aligned? | a:u32 a:u32
barrier | barrier | scope=cta? mode=red aligned? fn=popc t=u32 | d a:u32 a:u32? a:pred
barrier | barrier | scope=cta? mode=red aligned? fn=and|or t=pred | d a:u32 a:u32? a:pred
barrier.cluster | async | mode=arrive|wait sem=release|relaxed|acquire? aligned? |
bar.warp | collective | sync | a:u32
vote | collective | fn=all|any|uni t=pred | d a:pred
vote | collective | fn=ballot t=b32 | d a:pred
vote.sync | collective | fn=all|any|uni t=pred | d a:pred a:u32
vote.sync | collective | fn=ballot t=b32 | d a:pred a:u32
match | collective | fn=any|all sync t=b32|b64 | d:b32 a a:u32
shfl | collective | mode=up|down|bfly|idx t=b32 | d a a:u32 a:u32
shfl.sync | collective | mode=up|down|bfly|idx t=b32 | d a a:u32 a:u32 a:u32
activemask | collective | t=b32 | d
redux | collective | sync fn=add|min|max t=u32|s32 | d a a:u32
redux | collective | sync fn=and|or|xor t=b32 | d a a:u32
redux | collective | sync fn=min|max abs? NaN? t=f32 | d a a:u32
elect | collective | sync | d:b32 a:u32
bra | control | uni? | L
brx.idx | control | uni? | a:u32 T
call | control | uni? |
ret | control | uni? |
exit | control | - |
trap | control | - |
brkpt | special | - |
pmevent | special | mode=mask? | a:u32
nanosleep | special | t=u32 | a
setmaxnreg | special | mode=inc|dec sync aligned t=u32 | a
griddepcontrol | special | mode=launch_dependents|wait |
getctarank | async | ss=shared::cluster? t=u32|u64 | d:u32 a
mapa | async | ss=shared::cluster? t=u32|u64 | d a a:u32
cp.async | async | ca cache=shared|shared::cta ss=global cache=L2::cache_hint? cache=$fetch? | m m a:u32 a:u32? a:b64?
cp.async | async | cg cache=shared|shared::cta ss=global cache=L2::cache_hint? cache=$fetch? | m m a:u32 a:u32? a:b64?
cp.async.commit_group | async | - |
cp.async.wait_group | async | - | a:u32
cp.async.wait_all | async | - |
mma | tensor | sync aligned shape=m8n8k4 la=row|col lb=row|col t=f16 u=f16 v=f16 w=f16 | d:b32 a:b32 a:b32 a:b32
mma | tensor | sync aligned shape=m8n8k4 la=row|col lb=row|col t=f32 u=f16 v=f16 w=f16 | d a:b32 a:b32 a:b32
mma | tensor | sync aligned shape=m8n8k4 la=row|col lb=row|col t=f32 u=f16 v=f16 w=f32 | d a:b32 a:b32 a:f32
mma | tensor | sync aligned shape=m16n8k8|m16n8k16 la=row lb=col t=f16 u=f16 v=f16 w=f16 | d:b32 a:b32 a:b32 a:b32
mma | tensor | sync aligned shape=m16n8k8|m16n8k16 la=row lb=col t=f32 u=f16 v=f16 w=f32 | d a:b32 a:b32 a:f32
mma | tensor | sync aligned shape=m16n8k8|m16n8k16 la=row lb=col t=f32 u=bf16 v=bf16 w=f32 | d a:b32 a:b32 a:f32
mma | tensor | sync aligned shape=m16n8k4|m16n8k8 la=row lb=col t=f32 u=tf32 v=tf32 w=f32 | d a:b32 a:b32 a:f32
mma | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f32 u=e4m3|e5m2 v=e4m3|e5m2 w=f32 | d a:b32 a:b32 a:f32
mma | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f16 u=e4m3|e5m2 v=e4m3|e5m2 w=f16 | d:b32 a:b32 a:b32 a:b32
mma | tensor | sync aligned shape=m8n8k4|m16n8k4|m16n8k8|m16n8k16 la=row lb=col rnd=$round? t=f64 u=f64 v=f64 w=f64 | d a a a
mma | tensor | sync aligned shape=m8n8k16|m16n8k16|m16n8k32 la=row lb=col satfinite? t=s32 u=s8|u8 v=s8|u8 w=s32 | d a:b32 a:b32 a:s32
mma | tensor | sync aligned shape=m8n8k32|m16n8k32|m16n8k64 la=row lb=col satfinite? t=s32 u=s4|u4 v=s4|u4 w=s32 | d a:b32 a:b32 a:s32
mma | tensor | sync aligned shape=m8n8k128|m16n8k128|m16n8k256 la=row lb=col t=s32 u=b1 v=b1 w=s32 fn=xor|and mode=popc | d a:b32 a:b32 a:s32
mma.sp | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f16 u=f16 v=f16 w=f16 | d:b32 a:b32 a:b32 a:b32 a:b32 a:u32
mma.sp | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f32 u=f16 v=f16 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f32 u=bf16 v=bf16 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp | tensor | sync aligned shape=m16n8k8|m16n8k16 la=row lb=col t=f32 u=tf32 v=tf32 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp | tensor | sync aligned shape=m16n8k64 la=row lb=col t=f32 u=e4m3|e5m2 v=e4m3|e5m2 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp | tensor | sync aligned shape=m16n8k32|m16n8k64 la=row lb=col satfinite? t=s32 u=s8|u8 v=s8|u8 w=s32 | d a:b32 a:b32 a:s32 a:b32 a:u32
mma.sp | tensor | sync aligned shape=m16n8k64|m16n8k128 la=row lb=col satfinite? t=s32 u=s4|u4 v=s4|u4 w=s32 | d a:b32 a:b32 a:s32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f16 u=f16 v=f16 w=f16 | d:b32 a:b32 a:b32 a:b32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f32 u=f16 v=f16 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k16|m16n8k32 la=row lb=col t=f32 u=bf16 v=bf16 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k8|m16n8k16 la=row lb=col t=f32 u=tf32 v=tf32 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k64 la=row lb=col t=f32 u=e4m3|e5m2 v=e4m3|e5m2 w=f32 | d a:b32 a:b32 a:f32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k32|m16n8k64 la=row lb=col satfinite? t=s32 u=s8|u8 v=s8|u8 w=s32 | d a:b32 a:b32 a:s32 a:b32 a:u32
mma.sp::ordered_metadata | tensor | sync aligned shape=m16n8k64|m16n8k128 la=row lb=col satfinite? t=s32 u=s4|u4 v=s4|u4 w=s32 | d a:b32 a:b32 a:s32 a:b32 a:u32
wmma.load.a | tensor | sync aligned la=row|col shape=$w16 ss=global|$sh? t=f16|bf16|s8|u8 | d:b32 m a:u32?
wmma.load.a | tensor | sync aligned la=row|col shape=m16n16k8 ss=global|$sh? t=tf32 | d:b32 m a:u32?
wmma.load.a | tensor | sync aligned la=row|col shape=m8n8k4 ss=global|$sh? t=f64 | d m a:u32?
wmma.load.a | tensor | sync aligned la=row shape=m8n8k32 ss=global|$sh? t=s4|u4 | d:b32 m a:u32?
wmma.load.a | tensor | sync aligned la=row shape=m8n8k128 ss=global|$sh? t=b1 | d:b32 m a:u32?
wmma.load.b | tensor | sync aligned la=row|col shape=$w16 ss=global|$sh? t=f16|bf16|s8|u8 | d:b32 m a:u32?
wmma.load.b | tensor | sync aligned la=row|col shape=m16n16k8 ss=global|$sh? t=tf32 | d:b32 m a:u32?
wmma.load.b | tensor | sync aligned la=row|col shape=m8n8k4 ss=global|$sh? t=f64 | d m a:u32?
wmma.load.b | tensor | sync aligned la=col shape=m8n8k32 ss=global|$sh? t=s4|u4 | d:b32 m a:u32?
wmma.load.b | tensor | sync aligned la=col shape=m8n8k128 ss=global|$sh? t=b1 | d:b32 m a:u32?
wmma.load.c | tensor | sync aligned la=row|col shape=$w16 ss=global|$sh? t=f16 | d:b32 m a:u32?
wmma.load.c | tensor | sync aligned la=row|col shape=$w16|m16n16k8 ss=global|$sh? t=f32 | d m a:u32?
wmma.load.c | tensor | sync aligned la=row|col shape=$w16|m8n8k32|m8n8k128 ss=global|$sh? t=s32 | d m a:u32?
wmma.load.c | tensor | sync aligned la=row|col shape=m8n8k4 ss=global|$sh? t=f64 | d m a:u32?
wmma.store.d | tensor | sync aligned la=row|col shape=$w16 ss=global|$sh? t=f16 | m a:b32 a:u32?
wmma.store.d | tensor | sync aligned la=row|col shape=$w16|m16n16k8 ss=global|$sh? t=f32 | m a a:u32?
wmma.store.d | tensor | sync aligned la=row|col shape=$w16|m8n8k32|m8n8k128 ss=global|$sh? t=s32 | m a a:u32?
wmma.store.d | tensor | sync aligned la=row|col shape=m8n8k4 ss=global|$sh? t=f64 | m a a:u32?
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 satfinite? t=f16 u=f16 | d:b32 a:b32 a:b32 a:b32
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 satfinite? t=f16 u=f32 | d:b32 a:b32 a:b32 a:u
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 satfinite? t=f32 u=f16 | d a:b32 a:b32 a:b32
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 satfinite? t=f32 u=f32 | d a:b32 a:b32 a:u
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 t=f32 u=bf16 v=bf16 w=f32 | d a:b32 a:b32 a:f32
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=m16n16k8 t=f32 u=tf32 v=tf32 w=f32 | d a:b32 a:b32 a:f32
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=m8n8k4 rnd=$round? t=f64 u=f64 v=f64 w=f64 | d a a a
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 satfinite? t=s32 u=s8 v=s8 w=s32 | d a:b32 a:b32 a:s32
wmma.mma | tensor | sync aligned la=row|col lb=row|col shape=$w16 satfinite? t=s32 u=u8 v=u8 w=s32 | d a:b32 a:b32 a:s32
wmma.mma | tensor | sync aligned la=row lb=col shape=m8n8k32 satfinite? t=s32 u=s4 v=s4 w=s32 | d a:b32 a:b32 a:s32
wmma.mma | tensor | sync aligned la=row lb=col shape=m8n8k32 satfinite? t=s32 u=u4 v=u4 w=s32 | d a:b32 a:b32 a:s32
wmma.mma | tensor | fn=xor|and mode=popc sync aligned la=row lb=col shape=m8n8k128 t=s32 u=b1 v=b1 w=s32 | d a:b32 a:b32 a:s32
ldmatrix | tensor | sync aligned shape=m8n8 num=x1|x2|x4 trans? ss=$sh? t=b16 | d:b32 m
stmatrix | tensor | sync aligned shape=m8n8 num=x1|x2|x4 trans? ss=$sh? t=b16 | m a:b32
movmatrix | tensor | sync aligned shape=m8n8 trans t=b16 | d:b32 a:b32
mbarrier.init | async | ss=$sh? t=b64 | m a:u32
mbarrier.inval | async | ss=$sh? t=b64 | m
mbarrier.expect_tx | async | sem=relaxed? scope=cta|cluster? ss=$shc? t=b64 | m a:u32
mbarrier.complete_tx | async | sem=relaxed? scope=cta|cluster? ss=$shc? t=b64 | m a:u32
mbarrier.arrive | async | sem=release|relaxed? scope=cta|cluster? ss=$shc? t=b64 | d m a:u32?
mbarrier.arrive.expect_tx | async | sem=release|relaxed? scope=cta|cluster? ss=$shc? t=b64 | d m a:u32
mbarrier.arrive.noComplete | async | sem=release? scope=cta? ss=$sh? t=b64 | d m a:u32
mbarrier.arrive_drop | async | sem=release|relaxed? scope=cta|cluster? ss=$shc? t=b64 | d m a:u32?
mbarrier.arrive_drop.expect_tx | async | sem=release|relaxed? scope=cta|cluster? ss=$shc? t=b64 | d m a:u32
mbarrier.arrive_drop.noComplete | async | sem=release? scope=cta? ss=$sh? t=b64 | d m a:u32
mbarrier.test_wait | async | sem=acquire|relaxed? scope=cta|cluster? ss=$sh? t=b64 | d:pred m a
mbarrier.test_wait.parity | async | sem=acquire|relaxed? scope=cta|cluster? ss=$sh? t=b64 | d:pred m a:u32
mbarrier.try_wait | async | sem=acquire|relaxed? scope=cta|cluster? ss=$sh? t=b64 | d:pred m a a:u32?
mbarrier.try_wait.parity | async | sem=acquire|relaxed? scope=cta|cluster? ss=$sh? t=b64 | d:pred m a:u32 a:u32?
mbarrier.pending_count | async | t=b64 | d:u32 a
cp.async.mbarrier.arrive | async | noinc? ss=$sh? t=b64 | m
fence | fence | sem=acquire|release cache=sync_restrict::shared::cta|sync_restrict::shared::cluster scope=cluster |
fence.proxy | fence | mode=tensormap::generic sem=acquire scope=$scope | m a:u32
fence.proxy | fence | mode=tensormap::generic sem=release scope=$scope |
fence.proxy | fence | mode=async::generic sem=acquire|release cache=sync_restrict::shared::cta|sync_restrict::shared::cluster scope=cluster |
cp.async.bulk | async | to=shared::cluster|shared::cta ss=global cache=mbarrier::complete_tx::bytes | m m a:u32 m
cp.async.bulk.tensor | async | num=$dim to=shared::cluster|shared::cta ss=global mode=tile? cache=mbarrier::complete_tx::bytes | m m m
cp.async.bulk.tensor | async | num=3d|4d|5d to=shared::cluster|shared::cta ss=global mode=im2col cache=mbarrier::complete_tx::bytes | m m m a:u16
cp.async.bulk | async | to=shared::cluster|shared::cta ss=global cache=mbarrier::complete_tx::bytes cache=L2::cache_hint | m m a:u32 m a:b64
cp.async.bulk.tensor | async | num=$dim to=shared::cluster|shared::cta ss=global mode=tile? cache=mbarrier::complete_tx::bytes cache=L2::cache_hint | m m m a:b64
cp.async.bulk.tensor | async | num=3d|4d|5d to=shared::cluster|shared::cta ss=global mode=im2col cache=mbarrier::complete_tx::bytes cache=L2::cache_hint | m m m a:u16 a:b64
cp.async.bulk | async | to=shared::cluster ss=global cache=mbarrier::complete_tx::bytes multicast::cluster | m m a:u32 m a:b16
cp.async.bulk.tensor | async | num=$dim to=shared::cluster ss=global mode=tile? cache=mbarrier::complete_tx::bytes multicast::cluster | m m m a:b16
cp.async.bulk.tensor | async | num=3d|4d|5d to=shared::cluster ss=global mode=im2col cache=mbarrier::complete_tx::bytes multicast::cluster | m m m a:u16 a:b16
cp.async.bulk | async | to=shared::cluster ss=global cache=mbarrier::complete_tx::bytes multicast::cluster cache=L2::cache_hint | m m a:u32 m a:b16 a:b64
cp.async.bulk.tensor | async | num=$dim to=shared::cluster ss=global mode=tile? cache=mbarrier::complete_tx::bytes multicast::cluster cache=L2::cache_hint | m m m a:b16 a:b64
cp.async.bulk.tensor | async | num=3d|4d|5d to=shared::cluster ss=global mode=im2col cache=mbarrier::complete_tx::bytes multicast::cluster cache=L2::cache_hint | m m m a:u16 a:b16 a:b64
cp.async.bulk | async | to=global ss=shared::cta cache=bulk_group | m m a:u32
cp.async.bulk.tensor | async | num=$dim to=global ss=shared::cta mode=tile? cache=bulk_group | m m
cp.async.bulk.tensor | async | num=3d|4d|5d to=global ss=shared::cta mode=im2col_no_offs cache=bulk_group | m m
cp.async.bulk.prefetch | prefetch | cache=L2 ss=global | m a:u32
cp.async.bulk.prefetch.tensor | prefetch | num=$dim cache=L2 ss=global mode=tile? | m
cp.async.bulk.prefetch.tensor | prefetch | num=3d|4d|5d cache=L2 ss=global mode=im2col | m a:u16
cp.reduce.async.bulk.tensor | async | num=$dim to=global ss=shared::cta fn=add|min|max|inc|dec|and|or|xor mode=tile? cache=bulk_group | m m
cp.reduce.async.bulk.tensor | async | num=3d|4d|5d to=global ss=shared::cta fn=add|min|max|inc|dec|and|or|xor mode=im2col_no_offs cache=bulk_group | m m
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group fn=and|or|xor t=b32|b64 | m m a:u32
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group fn=add t=u32|s32|u64|f32|f64 | m m a:u32
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group fn=inc|dec t=u32 | m m a:u32
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group fn=min|max t=u32|s32|u64|s64 | m m a:u32
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group fn=add noftz t=f16|bf16 | m m a:u32
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group fn=min|max t=f16|bf16 | m m a:u32
cp.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint | m m a:u32 a:b64
cp.async.bulk.tensor | async | num=$dim to=global ss=shared::cta mode=tile? cache=bulk_group cache=L2::cache_hint | m m a:b64
cp.async.bulk.tensor | async | num=3d|4d|5d to=global ss=shared::cta mode=im2col_no_offs cache=bulk_group cache=L2::cache_hint | m m a:b64
cp.async.bulk.prefetch | prefetch | cache=L2 ss=global cache=L2::cache_hint | m a:u32 a:b64
cp.async.bulk.prefetch.tensor | prefetch | num=$dim cache=L2 ss=global mode=tile? cache=L2::cache_hint | m a:b64
cp.async.bulk.prefetch.tensor | prefetch | num=3d|4d|5d cache=L2 ss=global mode=im2col cache=L2::cache_hint | m a:u16 a:b64
cp.reduce.async.bulk.tensor | async | num=$dim to=global ss=shared::cta fn=add|min|max|inc|dec|and|or|xor mode=tile? cache=bulk_group cache=L2::cache_hint | m m a:b64
cp.reduce.async.bulk.tensor | async | num=3d|4d|5d to=global ss=shared::cta fn=add|min|max|inc|dec|and|or|xor mode=im2col_no_offs cache=bulk_group cache=L2::cache_hint | m m a:b64
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint fn=and|or|xor t=b32|b64 | m m a:u32 a:b64
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint fn=add t=u32|s32|u64|f32|f64 | m m a:u32 a:b64
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint fn=inc|dec t=u32 | m m a:u32 a:b64
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint fn=min|max t=u32|s32|u64|s64 | m m a:u32 a:b64
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint fn=add noftz t=f16|bf16 | m m a:u32 a:b64
cp.reduce.async.bulk | async | to=global ss=shared::cta cache=bulk_group cache=L2::cache_hint fn=min|max t=f16|bf16 | m m a:u32 a:b64
cp.reduce.async.bulk | async | to=shared::cluster ss=shared::cta cache=mbarrier::complete_tx::bytes fn=and|or|xor t=b32 | m m a:u32 m
cp.reduce.async.bulk | async | to=shared::cluster ss=shared::cta cache=mbarrier::complete_tx::bytes fn=add t=u32|s32|u64 | m m a:u32 m
cp.reduce.async.bulk | async | to=shared::cluster ss=shared::cta cache=mbarrier::complete_tx::bytes fn=inc|dec t=u32 | m m a:u32 m
cp.reduce.async.bulk | async | to=shared::cluster ss=shared::cta cache=mbarrier::complete_tx::bytes fn=min|max t=u32|s32 | m m a:u32 m
cp.async.bulk | async | to=shared::cluster ss=shared::cta cache=mbarrier::complete_tx::bytes | m m a:u32 m
cp.async.bulk.commit_group | async | - |
cp.async.bulk.wait_group | async | read? | a:u32
st.async | async | cache=weak? ss=shared::cluster? cache=mbarrier::complete_tx::bytes vec=v2|v4? t=b32|b64|u32|u64|s32|s64|f32|f64 | m a m
red.async | async | sem=relaxed? scope=cluster? ss=shared::cluster? cache=mbarrier::complete_tx::bytes fn=inc|dec t=u32 | m a m
red.async | async | sem=relaxed? scope=cluster? ss=shared::cluster? cache=mbarrier::complete_tx::bytes fn=min|max t=u32|s32 | m a m
red.async | async | sem=relaxed? scope=cluster? ss=shared::cluster? cache=mbarrier::complete_tx::bytes fn=add t=u32|s32|u64 | m a m
red.async | async | sem=relaxed? scope=cluster? ss=shared::cluster? cache=mbarrier::complete_tx::bytes fn=and|or|xor t=b32 | m a m
st.bulk | async | cache=weak? ss=shared::cta? | m a:b64 a:b64?
wgmma.fence | tensor | sync aligned |
wgmma.commit_group | tensor | sync aligned |
wgmma.wait_group | tensor | sync aligned | a:u32
wgmma.mma_async | tensor | sync aligned shape=$n16 t=f32 u=f16 v=f16 | x a:b64 a:b64 a:pred a:s32 a:s32 a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n32 t=f32 u=f16 v=f16 | x a:b64 a:b64 a:b32 a:u32 a:pred a:s32 a:s32 a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n16 t=f32 u=f16 v=f16 | x a:b32 a:b64 a:pred a:s32 a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n32 t=f32 u=f16 v=f16 | x a:b32 a:b64 a:b32 a:u32 a:pred a:s32 a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n16 t=f16 u=f16 v=f16 | x:b32 a:b64 a:b64 a:pred a:s32 a:s32 a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n32 t=f16 u=f16 v=f16 | x:b32 a:b64 a:b64 a:b32 a:u32 a:pred a:s32 a:s32 a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n16 t=f16 u=f16 v=f16 | x:b32 a:b32 a:b64 a:pred a:s32 a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n32 t=f16 u=f16 v=f16 | x:b32 a:b32 a:b64 a:b32 a:u32 a:pred a:s32 a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n16 t=f32 u=bf16 v=bf16 | x a:b64 a:b64 a:pred a:s32 a:s32 a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n32 t=f32 u=bf16 v=bf16 | x a:b64 a:b64 a:b32 a:u32 a:pred a:s32 a:s32 a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n16 t=f32 u=bf16 v=bf16 | x a:b32 a:b64 a:pred a:s32 a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n32 t=f32 u=bf16 v=bf16 | x a:b32 a:b64 a:b32 a:u32 a:pred a:s32 a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n8 t=f32 u=tf32 v=tf32 | x a:b64 a:b64 a:pred a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n16 t=f32 u=tf32 v=tf32 | x a:b64 a:b64 a:b32 a:u32 a:pred a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n32 t=f32 u=e4m3|e5m2 v=e4m3|e5m2 | x a:b64 a:b64 a:pred a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n64 t=f32 u=e4m3|e5m2 v=e4m3|e5m2 | x a:b64 a:b64 a:b32 a:u32 a:pred a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$n32 t=f16 u=e4m3|e5m2 v=e4m3|e5m2 | x:b32 a:b64 a:b64 a:pred a:s32 a:s32
wgmma.mma_async.sp | tensor | sync aligned shape=$n64 t=f16 u=e4m3|e5m2 v=e4m3|e5m2 | x:b32 a:b64 a:b64 a:b32 a:u32 a:pred a:s32 a:s32
wgmma.mma_async | tensor | sync aligned shape=$i32 satfinite? t=s32 u=s8|u8 v=s8|u8 | x a:b64 a:b64 a:pred
wgmma.mma_async.sp | tensor | sync aligned shape=$i64 satfinite? t=s32 u=s8|u8 v=s8|u8 | x a:b64 a:b64 a:b32 a:u32 a:pred
wgmma.mma_async | tensor | sync aligned shape=$i256 t=s32 u=b1 v=b1 fn=and mode=popc | x a:b64 a:b64 a:pred
alloca | special | t=u32|u64 | d a a:u32?
stacksave | special | t=u32|u64 | d
stackrestore | special | t=u32|u64 | a
tensormap.replace | async | mode=tile fn=global_address ss=global|shared::cta? cache=b1024 t=b64 | m a
tensormap.replace | async | mode=tile fn=global_stride ss=global|shared::cta? cache=b1024 t=b64 | m a:u32 a
tensormap.replace | async | mode=tile fn=rank|elemtype|interleave_layout|swizzle_mode|fill_mode ss=global|shared::cta? cache=b1024 t=b32 | m a
tensormap.replace | async | mode=tile fn=box_dim|global_dim|element_stride ss=global|shared::cta? cache=b1024 t=b32 | m a:u32 a
tensormap.cp_fenceproxy | async | to=global ss=shared::cta cache=tensormap::generic sem=release scope=$scope sync aligned | m m a:u32
multimem.ld_reduce | async | sem=weak|relaxed|acquire? scope=$scope? ss=global? fn=and|or|xor t=b32|b64 | d m
multimem.ld_reduce | async | sem=weak|relaxed|acquire? scope=$scope? ss=global? fn=add t=u32|s32|u64|f32|f64 | d m
multimem.ld_reduce | async | sem=weak|relaxed|acquire? scope=$scope? ss=global? fn=min|max t=u32|s32|u64|s64 | d m
multimem.ld_reduce | async | sem=weak|relaxed|acquire? scope=$scope? ss=global? fn=add vec=v2|v4 t=f32 | d m
multimem.ld_reduce | async | sem=weak|relaxed|acquire? scope=$scope? ss=global? fn=add|min|max cache=acc::f32? vec=v2|v4|v8 t=f16|bf16 | d m
multimem.ld_reduce | async | sem=weak|relaxed|acquire? scope=$scope? ss=global? fn=add|min|max cache=acc::f32? vec=v2|v4? t=f16x2|bf16x2 | d m
multimem.st | async | sem=weak|relaxed|release? scope=$scope? ss=global? t=b32|b64|u32|s32|u64|s64|f32|f64 | m a
multimem.st | async | sem=weak|relaxed|release? scope=$scope? ss=global? vec=v2|v4|v8 t=f16|bf16 | m a
multimem.st | async | sem=weak|relaxed|release? scope=$scope? ss=global? vec=v2|v4? t=f16x2|bf16x2 | m a
multimem.st | async | sem=weak|relaxed|release? scope=$scope? ss=global? vec=v2|v4 t=f32 | m a
multimem.red | async | sem=relaxed|release? scope=$scope? ss=global? fn=and|or|xor t=b32|b64 | m a
multimem.red | async | sem=relaxed|release? scope=$scope? ss=global? fn=add t=u32|s32|u64|f32|f64 | m a
multimem.red | async | sem=relaxed|release? scope=$scope? ss=global? fn=min|max t=u32|s32|u64|s64 | m a
multimem.red | async | sem=relaxed|release? scope=$scope? ss=global? fn=add vec=v2|v4 t=f32 | m a
multimem.red | async | sem=relaxed|release? scope=$scope? ss=global? fn=add vec=v2|v4|v8 t=f16|bf16 | m a
multimem.red | async | sem=relaxed|release? scope=$scope? ss=global? fn=add vec=v2|v4? t=f16x2|bf16x2 | m a
tex | texture | mode=base? shape=$geom vec=v4 t=u32|s32|f32|f16 u=s32|f32 | d m a:s32?
tex | texture | mode=level shape=$geom vec=v4 t=u32|s32|f32|f16 u=s32|f32 | d m a:u a:s32?
tex | texture | mode=grad shape=$geom vec=v4 t=u32|s32|f32|f16 u=f32 | d m a:u a:u a:s32?
tex | texture | mode=base? shape=$geom vec=v2 t=f16x2 u=s32|f32 | d m a:s32?
tex | texture | mode=level shape=$geom vec=v2 t=f16x2 u=s32|f32 | d m a:u a:s32?
tex | texture | mode=grad shape=$geom vec=v2 t=f16x2 u=f32 | d m a:u a:u a:s32?
tld4 | texture | fn=r|g|b|a shape=2d|a2d|cube|acube vec=v4 t=u32|s32|f32 u=f32 | d m a:s32?
txq | special | fn=width|height|depth|array_size|channel_data_type|channel_order|normalized_coords|num_mipmap_levels|num_samples t=b32 | d m
txq | special | fn=force_unnormalized_coords|filter_mode|addr_mode_0|addr_mode_1|addr_mode_2 t=b32 | d m
txq | special | mode=level fn=width|height|depth t=b32 | d m a
suq | special | fn=width|height|depth|array_size|channel_data_type|channel_order|memory_layout t=b32 | d m
suld | texture | mode=b shape=1d|2d|3d|a1d|a2d cache=ca|cg|cs|cv? vec=v2|v4? t=b8|b16|b32|b64 mode2=trap|clamp|zero | d m
sust | surface | mode=b shape=1d|2d|3d|a1d|a2d cache=wb|cg|cs|wt? vec=v2|v4? t=b8|b16|b32|b64 mode2=trap|clamp|zero | m a
sust | surface | mode=p shape=1d|2d|3d|a1d|a2d cache=wb|cg|cs|wt? vec=v2|v4? t=b32 mode2=trap|clamp|zero | m a
sured | surface | mode=b fn=add shape=1d|2d|3d t=u32|s32|u64 mode2=trap|clamp|zero | m a
sured | surface | mode=b fn=min|max shape=1d|2d|3d t=u32|s32|u64|s64 mode2=trap|clamp|zero | m a
sured | surface | mode=b fn=and|or shape=1d|2d|3d t=b32 mode2=trap|clamp|zero | m a
sured | surface | mode=p fn=add|min|max|and|or shape=1d|2d|3d t=b32 mode2=trap|clamp|zero | m a
vmad | arith | t=u32|s32 u=u32|s32 v=u32|s32 mode=po? sat? mode2=shr7|shr15? | d:b32 a:b32 a:b32 a:b32
vadd | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vsub | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vabsdiff | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vmin | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vmax | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vshl | arith | t=u32|s32 u=u32|s32 v=u32 sat? mode2=clamp|wrap mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vshr | arith | t=u32|s32 u=u32|s32 v=u32 sat? mode2=clamp|wrap mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vset | arith | u=u32|s32 v=u32|s32 cmp=eq|ne|lt|le|gt|ge mode=add|min|max? | d:b32 a:b32 a:b32 a:b32?
vadd2 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vsub2 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vavrg2 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vabsdiff2 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vmin2 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vmax2 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vset2 | arith | u=u32|s32 v=u32|s32 cmp=eq|ne|lt|le|gt|ge mode=add? | d:b32 a:b32 a:b32 a:b32
vadd4 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vsub4 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vavrg4 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vabsdiff4 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vmin4 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vmax4 | arith | t=u32|s32 u=u32|s32 v=u32|s32 sat? mode=add? | d:b32 a:b32 a:b32 a:b32
vset4 | arith | u=u32|s32 v=u32|s32 cmp=eq|ne|lt|le|gt|ge mode=add? | d:b32 a:b32 a:b32 a:b32
`

// opaque lists instructions that are known but whose forms are not in the
// table yet, with their class. Decode refuses them by name.
var opaque = map[string]Class{
	"tcgen05":              Tensor,
	"clusterlaunchcontrol": Async,
}
