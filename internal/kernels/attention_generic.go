package kernels

func attend(out, q []float32, a *Attention, s *attendScratch) {
	dim := a.HeadDim
	heads := len(q) / dim
	s.reset(heads, heads, dim)
	Scale(s.q, q[:heads*dim], a.Scale)
	first, count := a.Chunks()
	for c := first; c < first+count; c++ {
		attendChunk(&s.chunk, a, c, heads, s)
		s.merge(&s.chunk, heads, dim)
	}
	s.finish(out, 0, heads, dim, Generic)
}

// attendChunk computes what chunk c contributes to the heads of one token, whose scaled
// queries are in s.q.
func attendChunk(p *partial, a *Attention, c, heads int, s *attendScratch) {
	dim, width := a.HeadDim, widthOf(a.HeadDim)
	p0, p1 := max(a.first(), c*AttendChunk), min(a.N, (c+1)*AttendChunk)
	s.rows = grow(s.rows, AttendChunk*dim)
	a.loadChunk(s.rows, a.K, p0, p1)
	for h := range heads {
		scores := s.scores[h*AttendChunk:][:p1-p0]
		dotRows(scores, s.rows, s.q[h*dim:][:dim])
		p.m[h], p.l[h] = chunkSoftmax(scores, p0)
	}
	a.loadChunk(s.rows, a.V, p0, p1)
	for h := range heads {
		chunkValues(p.acc[h*width:][:dim], s.scores[h*AttendChunk:][:p1-p0], s.rows)
	}
}

// loadChunk widens one head of the rows of positions [p0, p1).
func (a *Attention) loadChunk(dst []float32, k *KVRegion, p0, p1 int) {
	walk := cellWalk{runs: a.Runs}
	for p := p0; p < p1; {
		cell, n := walk.next(p, p1-p)
		for i := range n {
			k.Load(dst[(p-p0+i)*a.HeadDim:][:a.HeadDim], cell+i, a.KVHead*a.HeadDim)
		}
		p += n
	}
}

// chunkSoftmax replaces the scores of the positions from p0 on by their weights and
// returns the largest score and the sum of the weights.
func chunkSoftmax(scores []float32, p0 int) (m, l float32) {
	m = maximum(minusInf, scores)
	var lanes [16]float32
	for i, v := range scores {
		p := Exp(v - m)
		scores[i] = p
		lanes[(p0+i)&15] += p
	}
	return m, sumLanes(&lanes)
}

// chunkValues sums the rows of values by their weights.
func chunkValues(out, weights, values []float32) {
	clear(out)
	dim := len(out)
	for i, p := range weights {
		addScaled(out, p, values[i*dim:][:dim])
	}
}

// merge joins a chunk's maxima, sums and weighted values to those of the heads.
func (s *attendScratch) merge(p *partial, heads, dim int) {
	width := widthOf(dim)
	for h := range heads {
		m := maximum(s.m[h], p.m[h:h+1])
		f, g := Exp(s.m[h]-m), Exp(p.m[h]-m)
		s.m[h] = m
		s.l[h] = FMA(p.l[h], g, s.l[h]*f)
		acc := s.acc[h*width:][:dim]
		for d, v := range p.acc[h*width:][:dim] {
			acc[d] = FMA(v, g, acc[d]*f)
		}
	}
}
