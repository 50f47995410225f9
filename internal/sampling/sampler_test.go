package sampling

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/exp/slices"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func mustNew(t testing.TB, p Params, vocab int) *Sampler {
	t.Helper()
	s, err := New(p, vocab, func(id int32) string { return fmt.Sprintf("<%d>", id) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSample(t testing.TB, s *Sampler, logits []float32) int32 {
	t.Helper()
	token, err := s.Sample(logits)
	if err != nil {
		t.Fatal(err)
	}
	return token.ID
}

// normal returns logits as a language model's, roughly.
func normal(rng *rand.Rand, n int, deviation float64) []float32 {
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(rng.NormFloat64() * deviation)
	}
	return row
}

func ids(c []candidate) []int32 {
	var out []int32
	for _, k := range c {
		out = append(out, k.id)
	}
	return out
}

func with(change func(*Params)) Params {
	p := Neutral()
	change(&p)
	return p
}

// Case B19: temperature 0, negative, tiny.
func TestTemperatureTiny(t *testing.T) {
	row := []float32{1, 3, 3, 2}
	for _, temperature := range []float32{0, 1e-9, 1e-40, 1e-45} {
		s := mustNew(t, with(func(p *Params) { p.Temperature = temperature }), 4)
		for range 1000 {
			if id := mustSample(t, s, row); id != 1 {
				t.Fatalf("temperature %v chose token %d, want 1", temperature, id)
			}
		}
	}
	for _, temperature := range []float32{-1, nan, inf, -inf} {
		_, err := New(with(func(p *Params) { p.Temperature = temperature }), 4, nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "temperature") {
			t.Errorf("temperature %v: got %v, want ErrInvalid naming the temperature", temperature, err)
		}
	}
	if Default().IsGreedy() || !Greedy().IsGreedy() {
		t.Error("the default is greedy, or Greedy is not")
	}
}

// Just above GreedyBelow, sampling still has to pick the best where it is
// unique, and share evenly among equals.
func TestTemperatureToZeroIsGreedy(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	cold := mustNew(t, with(func(p *Params) { p.Temperature = 2 * GreedyBelow }), 50)
	greedy := mustNew(t, Greedy(), 50)
	for range 200 {
		row := normal(rng, 50, 3)
		if a, b := mustSample(t, cold, row), mustSample(t, greedy, row); a != b {
			t.Fatalf("cold chose %d, greedy %d", a, b)
		}
	}
	cold = mustNew(t, cold.Params(), 4)
	seen := map[int32]bool{}
	for range 100 {
		seen[mustSample(t, cold, []float32{1, 3, 3, 2})] = true
	}
	if len(seen) != 2 || !seen[1] || !seen[2] {
		t.Errorf("cold among equals chose %v, want 1 and 2", seen)
	}
}

// Case B20: logits that are no numbers.
func TestNonFiniteLogits(t *testing.T) {
	ninf := -inf
	settings := map[string]Params{
		"greedy":  Greedy(),
		"neutral": Neutral(),
		"truncated": with(func(p *Params) {
			p.TopK, p.TopP, p.MinP = 2, 0.9, 0.1
		}),
		"mirostat": with(func(p *Params) { p.Mirostat.Enabled = true }),
	}
	for _, c := range []struct {
		row                 []float32
		nan, posInf, negInf int
		first               int32
	}{
		{[]float32{nan, 1, 2, 0}, 1, 0, 0, 0},
		{[]float32{0, 1, 2, nan}, 1, 0, 0, 3},
		{[]float32{1, inf, 2}, 0, 1, 0, 1},
		{[]float32{ninf, ninf, ninf}, 0, 0, 3, -1},
		{[]float32{nan, nan, nan}, 3, 0, 0, 0},
		{[]float32{0, nan, 1, inf, ninf}, 1, 1, 1, 1},
		{[]float32{inf, nan}, 1, 1, 0, 0},
	} {
		for name, p := range settings {
			s := mustNew(t, p, len(c.row))
			_, err := s.Sample(c.row)
			var e *NonFiniteError
			if !errors.Is(err, ErrNonFinite) || !errors.As(err, &e) {
				t.Errorf("%s, %v: got %v, want ErrNonFinite", name, c.row, err)
				continue
			}
			want := NonFiniteError{"model", c.nan, c.posInf, c.negInf, len(c.row), c.first}
			if *e != want {
				t.Errorf("%s, %v: got %+v, want %+v", name, c.row, *e, want)
			}
		}
	}
	for name, p := range settings {
		s := mustNew(t, p, 4)
		if id := mustSample(t, s, []float32{ninf, ninf, -5, ninf}); id != 2 {
			t.Errorf("%s: masked logits chose %d, want 2", name, id)
		}
	}
	// Whatever sampling does with NaN, a failed call leaves no trace.
	a, b := mustNew(t, Neutral(), 3), mustNew(t, Neutral(), 3)
	a.Sample([]float32{nan, 0, 0})
	for range 50 {
		if mustSample(t, a, []float32{0, 0, 0}) != mustSample(t, b, []float32{0, 0, 0}) {
			t.Fatal("a failed call has moved the random numbers")
		}
	}
}

// Case B21: the sign, once per token, the window.
func TestRepetitionPenalty(t *testing.T) {
	const a, b, c = 0, 1, 2
	row := []float32{2, -2, 0.5}
	for _, k := range []struct {
		name    string
		lastN   int
		history []int32
		want    []float32
	}{
		{"sign, once per token", 64, []int32{a, a, a, a, a, b}, []float32{2 / 1.5, -3, 0.5}},
		{"window of two", 2, []int32{a, a, a, b, c}, []float32{2, -3, 0.5 / 1.5}},
		{"off", 0, []int32{a, a, a, b, c}, []float32{2, -2, 0.5}},
		{"whole history", -1, []int32{a, a, a, b, c}, []float32{2 / 1.5, -3, 0.5 / 1.5}},
		{"window longer than the history", 1e9, []int32{a, a, a, b, c}, []float32{2 / 1.5, -3, 0.5 / 1.5}},
		{"window of one", 1, []int32{a, a, a, b, c}, []float32{2, -2, 0.5 / 1.5}},
		{"ids outside the vocabulary", -1, []int32{-1, 3, 1 << 30, c}, []float32{2, -2, 0.5 / 1.5}},
		{"no history", -1, nil, []float32{2, -2, 0.5}},
	} {
		t.Run(k.name, func(t *testing.T) {
			s := mustNew(t, with(func(p *Params) { p.Penalties = Penalties{LastN: k.lastN, Repeat: 1.5} }), 3)
			for _, id := range k.history {
				s.Accept(id)
			}
			for range 2 { // the counts must be cleared in between
				got, err := s.edit(row)
				if err != nil || !slices.Equal(got, k.want) {
					t.Fatalf("got %v, %v; want %v", got, err, k.want)
				}
			}
		})
	}
	s := mustNew(t, with(func(p *Params) { p.Penalties = Penalties{LastN: -1, Repeat: 1} }), 3)
	s.Accept(a)
	if s.edits() {
		t.Error("a penalty of 1 is not off")
	}
	if !slices.Equal(row, []float32{2, -2, 0.5}) {
		t.Error("the caller's logits were changed")
	}
}

func TestFrequencyAndPresence(t *testing.T) {
	s := mustNew(t, with(func(p *Params) { p.Penalties = Penalties{LastN: 4, Repeat: 1, Frequency: 0.25, Presence: 1} }), 3)
	for _, id := range []int32{2, 0, 0, 0, 1} {
		s.Accept(id)
	}
	got, _ := s.edit([]float32{2, -2, 0.5})
	if want := []float32{2 - 0.75 - 1, -2 - 0.25 - 1, 0.5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Penalties beyond the range of float32 neither ban a token nor make it +Inf.
func TestExtremePenaltiesStayFinite(t *testing.T) {
	s := mustNew(t, with(func(p *Params) {
		p.Penalties = Penalties{LastN: -1, Repeat: 1e-38}
		p.LogitBias = map[int32]float32{2: math.MaxFloat32, 3: -math.MaxFloat32}
	}), 4)
	s.Accept(0)
	s.Accept(1)
	got, _ := s.edit([]float32{1e30, -1e30, 1e38, -1e38})
	if want := []float32{math.MaxFloat32, got[1], math.MaxFloat32, -math.MaxFloat32}; !slices.Equal(got, want) || got[1] >= 0 {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDRYExample(t *testing.T) {
	// 1 2 3 was said before; after 1 2, token 3 would repeat it.
	s := mustNew(t, with(func(p *Params) {
		p.DRY.Multiplier, p.DRY.Base, p.DRY.Breakers = 0.5, 2, nil
	}), 6)
	for _, id := range []int32{4, 1, 2, 3, 5, 4, 1, 2} {
		s.Accept(id)
	}
	got, _ := s.edit(make([]float32, 6))
	// The match 4 1 2 has three tokens, one more than is allowed: 0.5 * 2^1.
	if want := []float32{0, 0, 0, -1, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDRYAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	// Token 0 ends in the breaker; tokens 1 and 2 only together spell it.
	texts := []string{"x##", "a#", "#b", "c", "d", "e"}
	for round := range 3000 {
		p := with(func(p *Params) {
			p.DRY = DRY{Multiplier: 0.75, Base: 1 + rng.Float32(), AllowedLength: 1 + rng.IntN(3), LastN: rng.IntN(40) - 1, Breakers: []string{"##"}}
			if round%3 == 0 {
				p.DRY.Breakers = nil
			}
		})
		if p.DRY.LastN == 0 {
			continue
		}
		s, err := New(p, len(texts), func(id int32) string { return texts[id] })
		if err != nil {
			t.Fatal(err)
		}
		var history []int32
		for range rng.IntN(60) {
			id := int32(rng.IntN(len(texts)))
			if n := len(history); n > 8 && rng.IntN(3) == 0 {
				id = history[n-7]
			}
			history = append(history, id)
			s.Accept(id)
		}
		breaker := func(i int) bool {
			if p.DRY.Breakers == nil {
				return false
			}
			return history[i] == 0 || history[i] == 2 && i > 0 && (history[i-1] == 1 || history[i-1] == 0)
		}
		want := make([]float32, len(texts))
		for id, penalty := range refDRY(history, breaker, p.DRY) {
			want[id] = float32(-penalty)
		}
		got, _ := s.edit(make([]float32, len(texts)))
		for id := range want {
			if math.Abs(float64(got[id]-want[id])) > 1e-6*math.Abs(float64(want[id])) {
				t.Fatalf("history %v, %+v: got %v, want %v", history, p.DRY, got, want)
			}
		}
	}
}

func TestDRYLongRepetitionStaysFinite(t *testing.T) {
	s := mustNew(t, with(func(p *Params) { p.DRY.Multiplier, p.DRY.Base = 1e30, 1e30 }), 3)
	for range 5000 {
		s.Accept(1)
	}
	got, _ := s.edit([]float32{1, 2, 3})
	if want := []float32{1, -math.MaxFloat32, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if id := mustSample(t, s, []float32{-inf, 2, -inf}); id != 1 {
		t.Errorf("the only token left was not chosen but %d", id)
	}
}

// Every mixture of truncations leaves the tokens and probabilities that the
// plain version leaves.
func TestTruncationAgainstReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	pick := func(values ...float32) float32 { return values[rng.IntN(len(values))] }
	for round := range 3000 {
		n := 1 + rng.IntN(60)
		if round%100 == 0 {
			n = 10000
		}
		row := normal(rng, n, float64(pick(0.1, 1, 4, 12)))
		if round%3 == 0 { // ties
			for i := range row {
				row[i] = float32(math.Round(float64(row[i])))
			}
		}
		for range rng.IntN(3) {
			row[rng.IntN(n)] = -inf
		}
		if _, ok := argmax(row); !ok {
			continue
		}
		p := with(func(p *Params) {
			p.Temperature = pick(0.3, 1, 2)
			p.TopK = []int{0, 0, 1, 5, 40, 700, 9000}[rng.IntN(7)]
			p.TypicalP = pick(1, 1, 0.31, 0.87)
			p.TopP = pick(1, 0.0317, 0.513, 0.953, 0.9991)
			p.MinP = pick(0, 0.0113, 0.217)
			p.XTC = XTC{Probability: pick(0, 1), Threshold: pick(0.0313, 0.107)}
		})
		s := mustNew(t, p, n)
		best, _ := argmax(row)
		s.shape(row, best)
		want := refShape(row, p, true)
		if p.TopP+p.TypicalP < 2 && round%3 == 0 && len(want) != len(s.cands) {
			// Ties put sums of equal terms on the border, where the order of
			// summation may decide; the sets then differ by one equal token.
			if d := len(want) - len(s.cands); d < -1 || d > 1 {
				t.Fatalf("%+v: %d tokens, want %d", p, len(s.cands), len(want))
			}
			continue
		}
		if len(want) != len(s.cands) {
			t.Fatalf("%+v: %d tokens, want %d", p, len(s.cands), len(want))
		}
		sum := 0.0
		for _, c := range s.cands {
			sum += c.w
		}
		for i, c := range s.cands {
			if c.id != want[i].id || math.Abs(c.w/sum-want[i].p) > 1e-12 {
				t.Fatalf("%+v: place %d is token %d with %v, want %d with %v", p, i, c.id, c.w/sum, want[i].id, want[i].p)
			}
		}
	}
}

func TestTopPIsTheSmallestSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 0))
	for range 500 {
		row := normal(rng, 200, 2)
		p := with(func(p *Params) { p.TopP = rng.Float32() })
		s := mustNew(t, p, len(row))
		best, _ := argmax(row)
		s.shape(row, best)
		all, _ := LogProbs(nil, row)
		mass, least := 0.0, float32(0)
		for _, id := range ids(s.cands) {
			mass += math.Exp(float64(all[id]))
			least = min(least, all[id])
		}
		if mass < float64(p.TopP)-1e-5 {
			t.Fatalf("top-p %v kept only %v", p.TopP, mass)
		}
		if without := mass - math.Exp(float64(least)); without > float64(p.TopP)+1e-5 {
			t.Fatalf("top-p %v kept %v, %v would do", p.TopP, mass, without)
		}
	}
}

// Adding a constant to all logits changes no set and no choice. Multiples of
// 1/64 keep the differences exact in float32.
func TestShiftInvariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	p := Default()
	p.TypicalP, p.XTC = 0.9, XTC{Probability: 0.5, Threshold: 0.05}
	a, b := mustNew(t, p, 300), mustNew(t, p, 300)
	for range 300 {
		row := make([]float32, 300)
		shifted := make([]float32, 300)
		for i := range row {
			row[i] = float32(rng.IntN(1024)) / 64
			shifted[i] = row[i] + 96.5
		}
		if x, y := mustSample(t, a, row), mustSample(t, b, shifted); x != y {
			t.Fatalf("chose %d, shifted %d", x, y)
		}
	}
}

// Without truncation, logits times c at temperature c are the same distribution.
func TestScaleInvariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 0))
	a := mustNew(t, Neutral(), 100)
	b := mustNew(t, with(func(p *Params) { p.Temperature = 4 }), 100)
	for range 300 {
		row := normal(rng, 100, 2)
		scaled := make([]float32, len(row))
		for i := range row {
			scaled[i] = 4 * row[i]
		}
		if x, y := mustSample(t, a, row), mustSample(t, b, scaled); x != y {
			t.Fatalf("chose %d, scaled %d", x, y)
		}
	}
}

func TestDistribution(t *testing.T) {
	row := []float32{0.3, -1, 2, 1.1, 0, -0.4, 1.9, 0.7}
	for _, temperature := range []float32{0.5, 1, 2} {
		p := with(func(p *Params) { p.Temperature, p.Seed = temperature, 42 })
		s := mustNew(t, p, len(row))
		const draws = 40000
		count := make([]float64, len(row))
		for range draws {
			count[mustSample(t, s, row)]++
		}
		chi2 := 0.0
		for _, k := range refShape(row, p, false) {
			want := k.p * draws
			chi2 += (count[k.id] - want) * (count[k.id] - want) / want
		}
		// Seven degrees of freedom: more than 24.3 has a chance of 0.1 %.
		if chi2 > 24.3 {
			t.Errorf("temperature %v: chi-square %v, want at most 24.3", temperature, chi2)
		}
	}
}

func TestXTC(t *testing.T) {
	// Probabilities 0.4, 0.3, 0.2, 0.1.
	row := make([]float32, 4)
	for i, p := range []float64{0.4, 0.3, 0.2, 0.1} {
		row[i] = float32(math.Log(p))
	}
	shape := func(probability, threshold float32) []int32 {
		s := mustNew(t, with(func(p *Params) { p.XTC = XTC{probability, threshold} }), 4)
		s.shape(row, 0)
		return ids(s.cands)
	}
	for _, c := range []struct {
		probability, threshold float32
		want                   []int32
	}{
		{1, 0.15, []int32{2, 3}},
		{1, 0.25, []int32{1, 2, 3}},
		{1, 0.35, []int32{0, 1, 2, 3}}, // only one above the threshold
		{1, 0.05, []int32{3}},
		{1, 0, []int32{3}},
		{1, 0.51, []int32{0, 1, 2, 3}},
		{0, 0.15, []int32{0, 1, 2, 3}},
	} {
		if got := shape(c.probability, c.threshold); !slices.Equal(got, c.want) {
			t.Errorf("probability %v, threshold %v: kept %v, want %v", c.probability, c.threshold, got, c.want)
		}
	}
	s := mustNew(t, with(func(p *Params) { p.XTC = XTC{0.25, 0.15} }), 4)
	struck := 0
	for range 10000 {
		if s.shape(row, 0); len(s.cands) == 2 {
			struck++
		}
	}
	if struck < 2350 || struck > 2650 { // five standard deviations are 217
		t.Errorf("struck %d times of 10000, want about 2500", struck)
	}
}

// Mirostat's point: the mean surprise tends to tau, whatever the distribution.
func TestMirostatReachesTau(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	rows := make([][]float32, 20)
	for i := range rows {
		rows[i] = normal(rng, 2000, 2+rng.Float64())
	}
	for _, tau := range []float32{3.5, 5, 6.5} {
		p := with(func(p *Params) { p.Mirostat = Mirostat{Enabled: true, Tau: tau, Eta: 0.1}; p.LogProbs = true })
		s := mustNew(t, p, 2000)
		mean, draws := 0.0, 2000
		for i := range draws {
			token, err := s.Sample(rows[i%len(rows)])
			if err != nil {
				t.Fatal(err)
			}
			mean -= float64(token.LogProb) / math.Ln2 / float64(draws)
		}
		if math.Abs(mean-float64(tau)) > 0.1 {
			t.Errorf("tau %v: mean surprise %v", tau, mean)
		}
	}
}

// One step by the paper's formulas, at a temperature that is not 1.
func TestMirostatStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for range 200 {
		row := normal(rng, 100, 2)
		p := with(func(p *Params) { p.Temperature, p.Mirostat = 1.7, Mirostat{true, 2.5, 0.3}; p.Seed = rng.Uint64() })
		s := mustNew(t, p, len(row))
		before := s.mu
		if before != 5 {
			t.Fatalf("mu starts at %v, want 2*tau = 5", before)
		}
		id := mustSample(t, s, row)
		var want []int32
		for _, k := range refShape(row, p, false) {
			surprise := -math.Log2(k.p)
			if surprise <= before {
				want = append(want, k.id)
			}
			if k.id != id {
				continue
			}
			if mu := before - float64(float32(0.3))*(surprise-2.5); math.Abs(s.mu-mu) > 1e-9 {
				t.Fatalf("mu became %v, want %v", s.mu, mu)
			}
		}
		if best, _ := argmax(row); len(want) == 0 {
			want = []int32{best}
		}
		if got := ids(s.cands); !slices.Equal(got, want) {
			t.Fatalf("kept %v, want %v", got, want)
		}
	}
}

func TestMirostatExtremes(t *testing.T) {
	row := []float32{0, 1, 5, 2}
	for _, m := range []Mirostat{{true, 0, 0}, {true, 0, math.MaxFloat32}, {true, math.MaxFloat32, math.MaxFloat32}, {true, math.MaxFloat32, 0}, {true, 1e-45, 1}} {
		s := mustNew(t, with(func(p *Params) { p.Mirostat = m }), 4)
		for range 500 {
			id := mustSample(t, s, row)
			if m.Tau == 0 && id != 2 {
				t.Fatalf("%+v: chose %d, want 2", m, id)
			}
		}
		if math.IsNaN(s.mu) || math.IsInf(s.mu, 0) {
			t.Errorf("%+v: mu is %v", m, s.mu)
		}
	}
}

func TestEdgeSettings(t *testing.T) {
	row := []float32{1, 3, 3, 2, -inf}
	for name, c := range map[string]struct {
		change func(*Params)
		want   []int32
	}{
		"top-k beyond the vocabulary": {func(p *Params) { p.TopK = 1 << 30 }, []int32{0, 1, 2, 3}},
		"top-k 1 takes the lowest id": {func(p *Params) { p.TopK = 1 }, []int32{1}},
		"top-p 0":                     {func(p *Params) { p.TopP = 0 }, []int32{1}},
		"top-p 1e-45":                 {func(p *Params) { p.TopP = 1e-45 }, []int32{1}},
		"typical-p 0":                 {func(p *Params) { p.TypicalP = 0 }, nil},
		"min-p 1 keeps equals":        {func(p *Params) { p.MinP = 1 }, []int32{1, 2}},
		"min-p 1e-45":                 {func(p *Params) { p.MinP = 1e-45 }, []int32{0, 1, 2, 3}},
		"all off":                     {func(*Params) {}, []int32{0, 1, 2, 3}},
	} {
		s := mustNew(t, with(c.change), len(row))
		s.shape(row, 1)
		if got := ids(s.cands); c.want != nil && !slices.Equal(got, c.want) || c.want == nil && len(got) != 1 {
			t.Errorf("%s: kept %v, want %v", name, got, c.want)
		}
		mustSample(t, s, row)
	}
	// More is asked for than a large, mostly masked vocabulary has.
	masked := make([]float32, 0, 3*4000)
	for range 4000 {
		masked = append(masked, -inf, -inf, 1)
	}
	wide := mustNew(t, with(func(p *Params) { p.TopK = 9000 }), len(masked))
	if wide.shape(masked, 2); len(wide.cands) != 4000 {
		t.Errorf("%d tokens, want the 4000 that are not masked", len(wide.cands))
	}
	// Differences beyond the range of float32.
	s := mustNew(t, Default(), 3)
	if id := mustSample(t, s, []float32{-math.MaxFloat32, math.MaxFloat32, 0}); id != 1 {
		t.Errorf("chose %d, want 1", id)
	}
}

func TestValidateListsAllFaults(t *testing.T) {
	p := Params{
		Temperature: -1, TopK: -1, TypicalP: nan, TopP: 1.5, MinP: -0.1,
		Penalties: Penalties{LastN: -2, Repeat: 0, Frequency: inf, Presence: nan},
		DRY:       DRY{Multiplier: -1, Base: 0.5, AllowedLength: 0, LastN: -2, Breakers: []string{"", strings.Repeat("x", 257)}},
		XTC:       XTC{Probability: 2, Threshold: -1},
		Mirostat:  Mirostat{Tau: -1, Eta: inf},
		LogitBias: map[int32]float32{-1: 0, 3: inf, 4: nan, 5: -inf, 6: 1},
	}
	err := p.Validate()
	var e *InvalidError
	if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	want := []string{"temperature is -1", "top-k is -1", "typical-p is NaN", "top-p is 1.5", "min-p is -0.1",
		"penalty window is -2", "repetition penalty is 0", "frequency penalty is +Inf", "presence penalty is NaN",
		"DRY multiplier is -1", "DRY base is 0.5", "DRY allowed length is 0", "DRY window is -2", "DRY breaker 0 is empty", "DRY breaker 1 has 257",
		"XTC probability is 2", "XTC threshold is -1", "mirostat tau is -1", "mirostat eta is +Inf",
		"logit bias for token -1", "logit bias of token 3 is +Inf", "logit bias of token 4 is NaN"}
	if len(e.Faults) != len(want) {
		t.Fatalf("%d faults, want %d: %v", len(e.Faults), len(want), err)
	}
	for i, w := range want {
		if !strings.HasPrefix(e.Faults[i], w) {
			t.Errorf("fault %d is %q, want %q", i, e.Faults[i], w)
		}
	}
	for _, ok := range []Params{Default(), Greedy(), Neutral()} {
		if err := ok.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		p     Params
		vocab int
	}{
		"no vocabulary":            {Default(), 0},
		"a bias beyond the vocab":  {with(func(p *Params) { p.LogitBias = map[int32]float32{10: 1} }), 10},
		"breakers without a text":  {with(func(p *Params) { p.DRY.Multiplier = 1 }), 10},
		"settings out of range":    {Params{}, 10},
		"negative vocabulary size": {Default(), -5},
	} {
		if _, err := New(c.p, c.vocab, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

// Rows of the output matrix beyond the vocabulary are never chosen, however
// great their logits, and are not looked at.
func TestPaddedVocabulary(t *testing.T) {
	row := make([]float32, 288)
	for i := 257; i < len(row); i++ {
		row[i] = 50
	}
	row[287] = nan
	hot := with(func(p *Params) { p.Temperature = 2 })
	for _, p := range []Params{Greedy(), Default(), hot} {
		s := mustNew(t, p, 257)
		for range 2000 {
			if id := mustSample(t, s, row); id >= 257 {
				t.Fatalf("chose token %d of 257", id)
			}
		}
	}
	_, err := mustNew(t, hot, 257).Sample(row[:256])
	var e *LengthError
	if !errors.Is(err, ErrLength) || !errors.As(err, &e) || *e != (LengthError{256, 257}) {
		t.Errorf("a short row: got %v, want ErrLength", err)
	}
}

func TestLogitBias(t *testing.T) {
	s := mustNew(t, func() Params {
		p := Greedy()
		p.LogitBias = map[int32]float32{1: -inf, 2: -inf, 0: 0.5}
		return p
	}(), 4)
	if id := mustSample(t, s, []float32{2, 9, 8, 2.25}); id != 0 {
		t.Errorf("chose %d, want 0", id)
	}
	if _, err := s.Sample([]float32{-inf, 9, 8, -inf}); !errors.Is(err, ErrNoCandidate) {
		t.Errorf("nothing left: got %v, want ErrNoCandidate", err)
	}
}

type failing struct{ err error }

func (f failing) Mask([]float32) error { return f.err }

type poison float32

func (p poison) Mask(logits []float32) error { logits[1] = float32(p); return nil }

func TestConstraint(t *testing.T) {
	row := []float32{0, 1, 2, 3, 4, 5}
	for _, p := range []Params{Greedy(), Default(), Neutral()} {
		s := mustNew(t, p, len(row))
		s.SetConstraint(MaskFunc(func(id int32) bool { return id == 1 || id == 2 }))
		for range 200 {
			if id := mustSample(t, s, row); id != 1 && id != 2 {
				t.Fatalf("chose the forbidden token %d", id)
			}
		}
		s.SetConstraint(MaskFunc(func(int32) bool { return false }))
		if _, err := s.Sample(row); !errors.Is(err, ErrNoCandidate) {
			t.Errorf("everything forbidden: %v", err)
		}
		broken := errors.New("grammar: broken")
		s.SetConstraint(failing{broken})
		if _, err := s.Sample(row); !errors.Is(err, broken) {
			t.Errorf("a failing constraint: %v", err)
		}
		s.SetConstraint(poison(nan))
		var e *NonFiniteError
		if _, err := s.Sample(row); !errors.As(err, &e) || e.Source != "constraint" || e.First != 1 {
			t.Errorf("a constraint that writes NaN: %v", err)
		}
		s.SetConstraint(nil)
		mustSample(t, s, row)
	}
	if !slices.Equal(row, []float32{0, 1, 2, 3, 4, 5}) {
		t.Error("the caller's logits were changed")
	}
}

func TestLogProb(t *testing.T) {
	row := []float32{1, 3, 3, 2, -inf}
	sum := math.Exp(1) + 2*math.Exp(3) + math.Exp(2)
	want := []float32{
		float32(1 - math.Log(sum)), float32(3 - math.Log(sum)), float32(3 - math.Log(sum)), float32(2 - math.Log(sum)), -inf}
	got, err := LogProbs(nil, row)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		one, err := LogProb(row, int32(i))
		if err != nil || one != got[i] || !(got[i] == want[i] || math.Abs(float64(got[i]-want[i])) < 1e-6) {
			t.Errorf("token %d: %v and %v, want %v (%v)", i, got[i], one, want[i], err)
		}
	}
	top, err := TopLogProbs(nil, row, 10)
	if err != nil || fmt.Sprint(top) != fmt.Sprint([]Token{{1, got[1]}, {2, got[1]}, {3, got[3]}, {0, got[0]}}) {
		t.Errorf("got %v, %v", top, err)
	}
	if top, _ = TopLogProbs(nil, row, 2); len(top) != 2 || top[1].ID != 2 {
		t.Errorf("the best two are %v", top)
	}
	if top, _ = TopLogProbs(nil, row, -1); len(top) != 0 {
		t.Errorf("minus one token: %v", top)
	}
	if _, err := LogProb(row, 5); !errors.Is(err, ErrLength) {
		t.Errorf("an id outside: %v", err)
	}
	for _, f := range []func([]float32) error{
		func(r []float32) error { _, err := LogProb(r, 0); return err },
		func(r []float32) error { _, err := LogProbs(nil, r); return err },
		func(r []float32) error { _, err := TopLogProbs(nil, r, 1); return err },
	} {
		if err := f([]float32{0, nan}); !errors.Is(err, ErrNonFinite) {
			t.Errorf("NaN: %v", err)
		}
		if err := f([]float32{-inf}); !errors.Is(err, ErrNonFinite) {
			t.Errorf("-Inf alone: %v", err)
		}
	}
	// Penalties and truncation change the choice, not what the model thought.
	p := Greedy()
	p.LogProbs, p.LogitBias = true, map[int32]float32{0: 100}
	token, err := mustNew(t, p, 5).Sample(row)
	if err != nil || token.ID != 0 || token.LogProb != got[0] {
		t.Errorf("got %+v, %v; want token 0 with %v", token, err, got[0])
	}
	if token, _ := mustNew(t, Greedy(), 5).Sample(row); token.LogProb == token.LogProb {
		t.Errorf("a log-probability that nobody asked for: %v", token.LogProb)
	}
}

func TestMessages(t *testing.T) {
	s := mustNew(t, Greedy(), 3)
	for want, row := range map[string][]float32{
		"sampling: 1 NaN and 1 +Inf among the 3 logits of the model, the first at token 1, want finite numbers (or -Inf to mask a token)": {0, nan, inf},
		"sampling: all 3 logits of the model are -Inf, want at least one finite":                                                          {-inf, -inf, -inf},
		"sampling: 2 logits for a vocabulary of 3, want at least as many":                                                                 {1, 2},
	} {
		if _, err := s.Sample(row); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err := New(with(func(p *Params) { p.TopP, p.Temperature = 2, nan }), s.Vocab(), nil)
	want := "sampling: invalid parameters: temperature is NaN, want a finite number of at least 0; top-p is 2, want 0 to 1"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// busy has every stage on that carries state.
func busy() Params {
	p := Default()
	p.Seed = 77
	p.Penalties = Penalties{LastN: 20, Repeat: 1.1, Frequency: 0.1, Presence: 0.1}
	p.DRY.Multiplier = 0.8
	p.DRY.Breakers = []string{"9><1"}
	p.XTC = XTC{Probability: 0.3, Threshold: 0.1}
	return p
}

func generate(t testing.TB, s *Sampler, rows [][]float32) []int32 {
	t.Helper()
	var out []int32
	for _, row := range rows {
		id := mustSample(t, s, row)
		s.Accept(id)
		out = append(out, id)
	}
	return out
}

func someRows(n int) [][]float32 {
	rng := rand.New(rand.NewPCG(21, 0))
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = normal(rng, 40, 2)
	}
	return rows
}

func TestCloneSaveAndReset(t *testing.T) {
	rows := someRows(120)
	miro := with(func(p *Params) { p.Mirostat = Mirostat{true, 3, 0.2} })
	for name, p := range map[string]Params{"busy": busy(), "mirostat": miro} {
		s := mustNew(t, p, 40)
		first := generate(t, s, rows[:60])
		saved, err := s.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		clone := s.Clone()
		restored := mustNew(t, p, 40)
		if err := restored.UnmarshalBinary(saved); err != nil {
			t.Fatal(err)
		}
		want := generate(t, s, rows[60:])
		if got := generate(t, clone, rows[60:]); !slices.Equal(got, want) {
			t.Errorf("%s: the clone went another way", name)
		}
		if got := generate(t, restored, rows[60:]); !slices.Equal(got, want) {
			t.Errorf("%s: the restored sampler went another way", name)
		}
		s.Reset()
		if got := generate(t, s, rows); !slices.Equal(got, append(first, want...)) {
			t.Errorf("%s: another way after Reset", name)
		}
	}
}

func TestTruncateForgets(t *testing.T) {
	rows := someRows(30)
	a, b := mustNew(t, busy(), 40), mustNew(t, busy(), 40)
	for id := range int32(30) {
		a.Accept(id % 10)
		if id < 19 {
			b.Accept(id % 10)
		}
	}
	a.Truncate(1000)
	if len(a.History()) != 30 {
		t.Fatalf("%d tokens after cutting back to 1000", len(a.History()))
	}
	a.Truncate(19)
	if !slices.Equal(generate(t, a, rows), generate(t, b, rows)) {
		t.Error("what was cut off still counts")
	}
	a.Truncate(-1)
	if len(a.History()) != 0 {
		t.Errorf("history %v", a.History())
	}
}

func TestDamagedState(t *testing.T) {
	s := mustNew(t, busy(), 40)
	generate(t, s, someRows(10))
	saved, _ := s.MarshalBinary()
	for n := range saved {
		if err := s.UnmarshalBinary(saved[:n]); !errors.Is(err, ErrState) {
			t.Fatalf("%d of %d bytes: got %v, want ErrState", n, len(saved), err)
		}
	}
	for name, damage := range map[string]func([]byte) []byte{
		"a byte too many":  func(b []byte) []byte { return append(b, 0) },
		"another magic":    func(b []byte) []byte { b[0]++; return b },
		"another version":  func(b []byte) []byte { b[7]++; return b },
		"generator":        func(b []byte) []byte { b[9]++; return b },
		"mu not a number":  func(b []byte) []byte { copy(b[29:], "\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
		"count of tokens":  func(b []byte) []byte { b[37]++; return b },
		"count, high byte": func(b []byte) []byte { b[44] = 0x40; return b },
	} {
		before, _ := s.MarshalBinary()
		if err := s.UnmarshalBinary(damage(slices.Clone(saved))); !errors.Is(err, ErrState) {
			t.Errorf("%s: got %v, want ErrState", name, err)
		}
		if after, _ := s.MarshalBinary(); string(before) != string(after) {
			t.Errorf("%s: the refused state left traces", name)
		}
	}
}

// The same choices on every platform and with every version of Go.
func TestPinnedChoices(t *testing.T) {
	p := Neutral()
	p.Seed = 1
	s := mustNew(t, p, 40)
	got := fmt.Sprint(generate(t, s, someRows(16)))
	if want := "[20 26 16 7 35 8 33 11 18 36 16 23 38 34 16 35]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = fmt.Sprint(generate(t, mustNew(t, busy(), 40), someRows(16)))
	if want := "[5 26 38 15 20 27 24 29 1 36 34 32 29 2 8 10]"; got != want {
		t.Errorf("busy: got %s, want %s", got, want)
	}
	if got, want := mustNew(t, Neutral(), 1).uniform(), 0x1.68aca7abc026p-05; got != want {
		t.Errorf("the first number of seed 0 is %x, want %x", got, want)
	}
}

func TestExponential(t *testing.T) {
	hash := fnv.New64a()
	worst := 0.0
	for i := range 200_000 {
		x := -float64(i) * 0.00354
		y := exponential(x)
		fmt.Fprintf(hash, "%x ", math.Float64bits(y))
		worst = max(worst, math.Abs(y/math.Exp(x)-1))
	}
	if worst > 8e-16 {
		t.Errorf("relative error %v", worst)
	}
	if got, want := hash.Sum64(), uint64(0xb7ca3f73c2ff34fd); got != want {
		t.Errorf("bits differ from other platforms: hash %#x, want %#x", got, want)
	}
	if exponential(0) != 1 || exponential(-709) != 0 || exponential(math.Inf(-1)) != 0 {
		t.Error("wrong at 0 or below the normal range")
	}
}

func TestLogarithm(t *testing.T) {
	hash := fnv.New64a()
	worst := 0.0
	for i := range 20_000 {
		x := math.Ldexp(1+float64(i%997)/997, i/10-1000)
		y := logarithm(x)
		fmt.Fprintf(hash, "%x ", math.Float64bits(y))
		if want := math.Log(x); want != 0 {
			worst = max(worst, math.Abs(y/want-1))
		}
	}
	if worst > 8e-16 {
		t.Errorf("relative error %v", worst)
	}
	if got, want := hash.Sum64(), uint64(0x1a4a1aef389225a8); got != want {
		t.Errorf("bits differ from other platforms: hash %#x, want %#x", got, want)
	}
	if logarithm(1) != 0 {
		t.Errorf("ln 1 is %v", logarithm(1))
	}
}

// Selection has to agree with sorting on orders that are hard for quickselect.
func TestPrefixEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	shapes := map[string]func(i, n int) float64{
		"ascending":  func(i, n int) float64 { return float64(i) },
		"descending": func(i, n int) float64 { return float64(-i) },
		"equal":      func(i, n int) float64 { return 0 },
		"organ pipe": func(i, n int) float64 { return float64(min(i, n-i)) },
		"random":     func(i, n int) float64 { return rng.Float64() },
		"few values": func(i, n int) float64 { return float64(rng.IntN(3)) },
	}
	for name, key := range shapes {
		for _, n := range []int{1, 2, 24, 25, 100, 1000} {
			a := make([]ranked, n)
			for i := range a {
				a[i] = ranked{key: key(i, n), w: 1, id: int32(i)}
			}
			sorted := slices.Clone(a)
			slices.SortFunc(sorted, compareRanked)
			for _, k := range []int{-1, 0, 1, 2, n / 3, n - 1, n, n + 5} {
				want := sorted[min(max(k, 1), n)-1]
				if got := prefixEnd(slices.Clone(a), float64(k)); got != want {
					t.Fatalf("%s, %d of %d: got %v, want %v", name, k, n, got, want)
				}
			}
		}
	}
}

// The bound of top-p has to leave enough, and little more than that.
func TestNucleusBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	for range 500 {
		row := normal(rng, 1+rng.IntN(2000), 10*rng.Float64())
		best, _ := argmax(row)
		p := float64(rng.Float32())
		mass, d := nucleus(row, row[best], p)
		if want := sumExp(row, row[best], 1); mass != want {
			t.Fatalf("mass %v, want %v", mass, want)
		}
		share := func(d float64) float64 {
			sum := 0.0
			for _, x := range row {
				if distance := float64(x) - float64(row[best]); distance >= d {
					sum += exponential(distance)
				}
			}
			return sum / mass
		}
		if got := share(d); got < p {
			t.Fatalf("share %v of the tokens down to %v, want %v", got, d, p)
		}
		if got := share(d + 0.2500001); d < -0.25 && got > p+1e-8 {
			t.Fatalf("share %v without the last quarter of %v, %v would do", got, d, p)
		}
	}
	// Tokens so far below that only their number could matter.
	if _, d := nucleus([]float32{0, -100, -math.MaxFloat32}, 0, 1); !math.IsInf(d, -1) {
		t.Errorf("the whole mass ends at %v", d)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	row := normal(rng, 10000, 3)
	miro := with(func(p *Params) { p.Mirostat.Enabled = true })
	large := with(func(p *Params) { p.TopK, p.TypicalP = 9000, 0.9 })
	quiet := busy()
	quiet.DRY.Breakers = nil
	for name, p := range map[string]Params{"greedy": Greedy(), "default": Default(), "neutral": Neutral(),
		"top-p": with(func(p *Params) { p.TopP = 0.9 }), "min-p": with(func(p *Params) { p.MinP = 0.1 }), "busy": quiet, "mirostat": miro, "large": large} {
		p.LogProbs = true
		s := mustNew(t, p, len(row))
		s.Reserve(2000)
		n := testing.AllocsPerRun(200, func() {
			token, err := s.Sample(row)
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(token.ID)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations per token", name, n)
		}
	}
}

func FuzzSample(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x00\x40"), []byte{1, 2, 1, 2}, float32(0.8), 40, float32(0.95), float32(0.05), float32(1), float32(1.1), float32(0.8), float32(0.5), uint64(1))
	f.Add([]byte("\x00\x00\xc0\x7f\x00\x00\x00\x40"), []byte{0}, float32(0), 0, float32(1), float32(0), float32(0.5), float32(1e-38), float32(1e38), float32(1), uint64(2))
	f.Add([]byte("\xff\xff\x7f\x7f\xff\xff\x7f\xff\x00\x00\x80\xff"), []byte{0, 0, 0}, float32(1e-45), -1, float32(0), float32(1), float32(0), float32(0), float32(-1), float32(2), uint64(3))
	f.Fuzz(func(t *testing.T, data, history []byte, temperature float32, topK int, topP, minP, typicalP, repeat, dry, xtc float32, seed uint64) {
		row := make([]float32, len(data)/4)
		for i := range row {
			b := data[4*i:]
			row[i] = math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
		}
		p := Default()
		p.Seed, p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP = seed, temperature, topK, topP, minP, typicalP
		p.Penalties = Penalties{LastN: int(seed%9) - 1, Repeat: repeat, Frequency: dry, Presence: xtc}
		p.DRY.Multiplier, p.DRY.Breakers = dry, []string{">"}
		p.XTC = XTC{Probability: xtc, Threshold: 0.1}
		p.Mirostat = Mirostat{Enabled: seed%5 == 0, Tau: dry, Eta: xtc}
		p.LogProbs = true
		s, err := New(p, len(row), func(id int32) string { return "ab>"[:id&3%4] })
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		for _, id := range history {
			s.Accept(int32(id) - 1)
		}
		_, ok := argmax(row)
		for range 3 {
			token, err := s.Sample(row)
			switch {
			case err != nil && (ok || !errors.Is(err, ErrNonFinite)):
				t.Fatalf("%v: %v", row, err)
			case err != nil:
				return
			case !ok:
				t.Fatalf("%v: chose %v", row, token)
			case token.ID < 0 || int(token.ID) >= len(row) || math.IsInf(float64(row[token.ID]), -1):
				t.Fatalf("%v: chose %v", row, token)
			case !(token.LogProb <= 0):
				t.Fatalf("%v: log-probability %v", row, token)
			}
			s.Accept(token.ID)
		}
	})
}

func FuzzState(f *testing.F) {
	s := mustNew(f, Default(), 4)
	saved, _ := s.MarshalBinary()
	f.Add(saved)
	s.Accept(3)
	saved, _ = s.MarshalBinary()
	f.Add(saved)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := mustNew(t, busy(), 4)
		if err := s.UnmarshalBinary(b); err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			return
		}
		if again, _ := s.MarshalBinary(); string(again) != string(b) {
			t.Fatalf("%q read and written is %q", b, again)
		}
		mustSample(t, s, []float32{1, 2, 3, 4})
	})
}

func ExampleSampler() {
	p := Default()
	p.Seed = 4
	s, err := New(p, 4, nil)
	if err != nil {
		panic(err)
	}
	logits := []float32{0.1, 2.5, 2.4, -1}
	for range 3 {
		token, err := s.Sample(logits)
		if err != nil {
			panic(err)
		}
		s.Accept(token.ID)
	}
	fmt.Println(s.History())
	// Output: [2 1 2]
}

func BenchmarkSample(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 0))
	row := normal(rng, 151936, 2.5)
	logProbs := Greedy()
	logProbs.LogProbs = true
	for _, c := range []struct {
		name string
		p    Params
	}{
		{"greedy", Greedy()},
		{"greedy+logprob", logProbs},
		{"default", Default()},
		{"top-k=40,top-p=0.95", with(func(p *Params) { p.TopK, p.TopP = 40, 0.95 })},
		{"top-k=20000", with(func(p *Params) { p.TopK = 20000 })},
		{"top-p=0.95", with(func(p *Params) { p.TopP = 0.95 })},
		{"min-p=0.05", with(func(p *Params) { p.MinP = 0.05 })},
		{"typical-p=0.95", with(func(p *Params) { p.TypicalP = 0.95 })},
		{"neutral", Neutral()},
		{"mirostat", with(func(p *Params) { p.Mirostat.Enabled = true })},
		{"all", with(func(p *Params) {
			p.TopK, p.TopP, p.MinP, p.TypicalP = 40, 0.95, 0.05, 0.95
			p.Penalties = Penalties{LastN: 64, Repeat: 1.1, Frequency: 0.1, Presence: 0.1}
			p.DRY.Multiplier = 0.8
			p.XTC = XTC{Probability: 0.5, Threshold: 0.1}
		})},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := mustNew(b, c.p, len(row))
			for id := range int32(1000) {
				s.Accept(id % 300)
			}
			mustSample(b, s, row)
			b.ReportAllocs()
			for b.Loop() {
				mustSample(b, s, row)
			}
		})
	}
	// Normal logits spread the mass over tens of thousands of tokens; a model
	// that knows what comes next does not.
	b.Run("top-p=0.95,peaked", func(b *testing.B) {
		for id := range 10 {
			row[id*1000] += 12
		}
		s := mustNew(b, with(func(p *Params) { p.TopP = 0.95 }), len(row))
		b.ReportAllocs()
		for b.Loop() {
			mustSample(b, s, row)
		}
	})
}

func BenchmarkSumExp(b *testing.B) {
	row := normal(rand.New(rand.NewPCG(1, 0)), 151936, 2.5)
	for b.Loop() {
		sumExp(row, 12, 1)
	}
}

// greatest returns the k greatest logits, NaN first, with their ids.
func greatest(row []float32, k int) (logits []float32, ids []int32) {
	for i := range row {
		ids = append(ids, int32(i))
	}
	rank := func(id int32) float64 {
		if x := row[id]; x == x {
			return float64(x)
		}
		return math.MaxFloat64
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(rank(b), rank(a)) })
	ids = ids[:min(k, len(ids))]
	for _, id := range ids {
		logits = append(logits, row[id])
	}
	return logits, ids
}

// SampleTop chooses from the greatest logits what Sample chooses from all, with the same random
// numbers left over, or says that it cannot.
func TestSampleTop(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	pick := func(values ...float32) float32 { return values[rng.IntN(len(values))] }
	some := 0
	for round := range 3000 {
		vocab := 1 + rng.IntN(90)
		p := with(func(p *Params) {
			p.Seed = uint64(round)
			p.Temperature = pick(0, 0.7, 1, 2)
			p.TopK = rng.IntN(70)
			p.TopP = pick(1, 0.9, 0.3, 0)
			p.MinP = pick(0, 0.05, 1)
			p.TypicalP = pick(1, 1, 0.5)
			p.XTC = XTC{Probability: pick(0, 0.5, 1), Threshold: pick(0.01, 0.2)}
			p.Penalties.Repeat = pick(1, 1, 1, 1.1)
			p.DRY.Multiplier = pick(0, 0, 0, 1)
			p.LogProbs = rng.IntN(9) == 0
			p.Mirostat.Enabled = rng.IntN(9) == 0
			if rng.IntN(9) == 0 {
				p.LogitBias = map[int32]float32{0: 1}
			}
		})
		all, top := mustNew(t, p, vocab), mustNew(t, p, vocab)
		for range 4 {
			row := normal(rng, vocab, 2)
			for i := range row {
				row[i] = float32(math.Round(float64(row[i]*4))) / 4 // many equals
			}
			if x := pick(0, 0, nan, inf, -inf, -inf); x != 0 {
				for range 1 + rng.IntN(vocab) {
					row[rng.IntN(vocab)] = x
				}
			}
			found, ids := greatest(row, max(1, top.Enough())+rng.IntN(5))
			want, err := all.Sample(row)
			got, ok := top.SampleTop(found, ids)
			if ok != (err == nil && top.Enough() > 0) {
				t.Fatalf("%+v: ok is %v, Sample's error %v", p, ok, err)
			}
			if top.Enough() == 0 {
				if got, err = top.Sample(row); err != nil {
					continue
				}
			} else if some++; !ok {
				continue
			}
			if got.ID != want.ID {
				t.Fatalf("%+v of %v: chose %d, want %d", p, row, got.ID, want.ID)
			}
			all.Accept(want.ID)
			top.Accept(want.ID)
		}
		a, _ := all.MarshalBinary()
		b, _ := top.MarshalBinary()
		if string(a) != string(b) {
			t.Fatalf("%+v: the states differ", p)
		}
	}
	if some < 3000 {
		t.Errorf("only %d rows were chosen from by their greatest logits", some)
	}
}
