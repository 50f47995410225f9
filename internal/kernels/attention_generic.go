package kernels

import "math"

func attend(out, q []float32, a *Attention, s *attendScratch) {
	dim := a.HeadDim
	heads := len(q) / dim
	s.reset(heads, dim)
	Scale(s.q, q[:heads*dim], a.Scale)

	first := 0
	if a.Window > 0 {
		first = max(0, a.N-a.Window)
	}
	keys, values := cellWalk{runs: a.Runs}, cellWalk{runs: a.Runs}
	for p0 := first; p0 < a.N; {
		p1 := min(a.N, (p0/AttendChunk+1)*AttendChunk)
		loadChunk(s.rows, a.K, dim, a.KVHead, &keys, p0, p1)
		for h := range heads {
			scores := s.scores[h*AttendChunk:][:p1-p0]
			dotRows(scores, s.rows, s.q[h*dim:][:dim])
			s.mc[h], s.lc[h] = chunkSoftmax(scores, p0)
		}
		loadChunk(s.rows, a.V, dim, a.KVHead, &values, p0, p1)
		for h := range heads {
			chunkValues(s.part, s.scores[h*AttendChunk:][:p1-p0], s.rows)
			s.merge(h, dim)
		}
		p0 = p1
	}
	for h := range heads {
		Scale(out[h*dim:][:dim], s.acc[h*dim:][:dim], 1/s.l[h])
	}
}

// chunkSoftmax replaces the scores of the positions from p0 on by their weights and
// returns the largest score and the sum of the weights.
func chunkSoftmax(scores []float32, p0 int) (m, l float32) {
	m = float32(math.Inf(-1))
	for _, v := range scores {
		if v > m {
			m = v
		}
	}
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

// merge joins the chunk's maximum, sum and partial output to those of head h.
func (s *attendScratch) merge(h, dim int) {
	m := s.m[h]
	if s.mc[h] > m {
		m = s.mc[h]
	}
	f, g := Exp(s.m[h]-m), Exp(s.mc[h]-m)
	s.m[h] = m
	s.l[h] = FMA(s.lc[h], g, s.l[h]*f)
	acc := s.acc[h*dim:][:dim]
	for d, v := range s.part {
		acc[d] = FMA(v, g, acc[d]*f)
	}
}
