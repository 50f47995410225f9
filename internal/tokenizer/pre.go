package tokenizer

import "golang.org/x/exp/slices"

// preTokenizer is what a name in tokenizer.ggml.pre stands for.
type preTokenizer struct {
	scanners     []scanner // each cuts the pieces of the one before
	ignoreMerges bool      // a piece that is a token is that token, whatever the merges say
	addBOS       bool      // sequences begin with BOS unless the file says otherwise
	nfc          bool      // text is brought to Unicode's normal form C first
}

var (
	gpt2       = []scanner{scanGPT2}
	digitGPT2  = []scanner{scanNumber1, scanGPT2}
	llama3     = []scanner{wordRules{contractions: true, digits: 3, word: letter, tail: "\r\n"}.scan}
	qwen2      = []scanner{wordRules{contractions: true, digits: 1, word: letter, tail: "\r\n"}.scan}
	qwen35     = []scanner{wordRules{contractions: true, digits: 1, word: letter | mark, tail: "\r\n"}.scan}
	noEnglish  = []scanner{wordRules{digits: 1, word: letter, tail: "\r\n"}.scan}
	seedCoder  = []scanner{wordRules{contractions: true, digits: 1, word: letter}.scan}
	exaoneMoE  = []scanner{wordRules{contractions: true, digits: 1, word: letter, phrases: true, tail: "\r\n/", tailMax: 1}.scan}
	miniCPM5   = []scanner{scanNumber3, wordRules{contractions: true, word: letter, tail: "\r\n"}.scan}
	laguna     = []scanner{scanLines, qwen2[0]}
	jais2      = []scanner{llama3[0], scanCascade}
	gpt4o      = []scanner{caseRules{contractions: true, digits: 3, tail: "\r\n/"}.scan}
	tekken     = []scanner{caseRules{digits: 1, tail: "\r\n/"}.scan}
	kimiK2     = []scanner{caseRules{contractions: true, digits: 3, tail: "\r\n", apartHan: true}.scan}
	tinyAya    = []scanner{scanWordEndGroups, scanWordEndThrees, gpt4o[0]}
	youtu      = []scanner{scanYoutu, caseRules{contractions: true, digits: 1, tail: "\r\n/"}.scan}
	deepseekV3 = []scanner{scanNumber3, scanSet(isCJKKana), isolate(matchPunctuated(false))}
	spark      = []scanner{scanNumber3, scanSet(isCJKKana), isolate(matchPunctuated(true)), scanNumber1}
	afmoe      = []scanner{scanGroups, scanThrees, scanSet(isAsian), isolate(matchPunctuated(false))}
	falcon     = []scanner{scanMarks("$+<=>^~|`"), scanGPT2, scanASCIITriples}
	byDefault  = []scanner{scanMarks("$+<=>^~|"), scanGPT2, scanNumberRun, scanASCIITriples}
	clauses    = []scanner{scanClause}
	viking     = []scanner{scanClause, scanNumber1}

	deepseekLLM   = []scanner{scanBreak, scanSpaced(isAlphabetic), scanSpaced(isPunctuation), scanTrailingSpace, scanSet(isCJKHangul), scanNumberRun}
	deepseekCoder = []scanner{scanBreak, scanSpaced(classIs(letter)), scanSpaced(classIs(punct)), scanSet(isCJKHangul), scanNumber1}
)

// preTokenizers holds every name that converters write into tokenizer.ggml.pre and that
// this package can honour.
var preTokenizers = func() map[string]preTokenizer {
	m := map[string]preTokenizer{}
	add := func(p preTokenizer, names ...string) {
		for _, n := range names {
			m[n] = p
		}
	}
	add(preTokenizer{scanners: gpt2},
		"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
		"jina-v1-en", "jina-v2-code", "roberta-bpe", "jais", "trillion", "granite-docling", "exaone4")
	add(preTokenizer{scanners: gpt2, nfc: true}, "mpt", "olmo", "modern-bert")
	add(preTokenizer{scanners: digitGPT2, nfc: true}, "command-r")
	add(preTokenizer{scanners: digitGPT2},
		"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2")
	add(preTokenizer{scanners: llama3, ignoreMerges: true, addBOS: true},
		"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano")
	add(preTokenizer{scanners: llama3}, "dbrx", "smaug-bpe", "glm4", "chatglm-bpe")
	add(preTokenizer{scanners: qwen2, nfc: true}, "qwen2", "deepseek-r1-qwen", "megrez", "f2llmv2")
	add(preTokenizer{scanners: qwen2}, "kormo", "stablelm2", "hunyuan", "solar-open", "grok-2", "bailingmoe", "bailingmoe2", "llada-moe")
	add(preTokenizer{scanners: qwen35, nfc: true}, "qwen35")
	add(preTokenizer{scanners: noEnglish}, "ufakzeka")
	add(preTokenizer{scanners: seedCoder}, "seed-coder")
	add(preTokenizer{scanners: exaoneMoE}, "exaone-moe")
	add(preTokenizer{scanners: miniCPM5, ignoreMerges: true}, "minicpm5")
	add(preTokenizer{scanners: laguna}, "laguna")
	add(preTokenizer{scanners: jais2}, "jais-2")
	add(preTokenizer{scanners: gpt4o}, "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2")
	add(preTokenizer{scanners: gpt4o, ignoreMerges: true}, "granite-embed-multi-97m")
	add(preTokenizer{scanners: tekken, ignoreMerges: true, addBOS: true}, "tekken")
	add(preTokenizer{scanners: kimiK2}, "kimi-k2")
	add(preTokenizer{scanners: tinyAya}, "tiny_aya", "cohere2moe")
	add(preTokenizer{scanners: youtu, ignoreMerges: true}, "youtu")
	add(preTokenizer{scanners: deepseekLLM}, "deepseek-llm")
	add(preTokenizer{scanners: deepseekCoder}, "deepseek-coder")
	add(preTokenizer{scanners: deepseekV3}, "deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4")
	add(preTokenizer{scanners: spark}, "spark2_5")
	add(preTokenizer{scanners: afmoe}, "afmoe")
	add(preTokenizer{scanners: falcon}, "falcon")
	add(preTokenizer{scanners: byDefault}, "default")
	add(preTokenizer{scanners: clauses}, "poro-chat", "bloom", "gpt3-finnish")
	add(preTokenizer{scanners: viking}, "viking")
	return m
}()

func classIs(set class) func(rune) bool {
	return func(v rune) bool { return classes().of(v)&set != 0 }
}

func within(v rune, ranges ...rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= v && v <= ranges[i+1] {
			return true
		}
	}
	return false
}

// isCJKKana stands for [一-龥぀-ゟ゠-ヿ].
func isCJKKana(v rune) bool { return within(v, 0x4E00, 0x9FA5, 0x3040, 0x30FF) }

// isCJKHangul stands for [一-龥ࠀ-一가-퟿].
func isCJKHangul(v rune) bool { return within(v, 0x0800, 0x9FA5, 0xAC00, 0xD7FF) }

// isPunctuation stands for [!-/:-~！-／：-～‘-‟　-。]; most letters of the second range are
// gone before it is asked.
func isPunctuation(v rune) bool {
	return within(v, '!', '/', ':', '~', 0xFF01, 0xFF0F, 0xFF1A, 0xFF5E, 0x2018, 0x201F, 0x3000, 0x3002)
}

// isAsian stands for [一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ].
func isAsian(v rune) bool {
	return within(v, 0x4E00, 0x9FFF, 0x3400, 0x4DBF, 0xF900, 0xFAFF, 0x3040, 0x30FF, 0xFF65, 0xFF9F, 0x2F00, 0x2FDF,
		0x0E40, 0x0E7F, 0x0E80, 0x0EFF, 0x1780, 0x17FF, 0x1000, 0x109F, 0xAA60, 0xAA7F, 0xA9E0, 0xA9FF, 0xAC00, 0xD7AF, 0x1100, 0x11FF)
}

// scanYoutu stands for [가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+, isolated.
var scanYoutu = isolate(func(s string, i int) int {
	for _, in := range []func(rune) bool{
		func(v rune) bool { return within(v, 0xAC00, 0xD7A3, 0x3131, 0x318E) },
		func(v rune) bool {
			switch v {
			case '！', '…', '“', '”', '‘', '’', '—', '：', '；', '，':
				return true
			}
			return within(v, 0x3001, 0x303F, 0xFE30, 0xFE4F)
		},
		func(v rune) bool { return within(v, 0x3105, 0x312F) },
		isCJKKana,
	} {
		if end := skipFunc(s, i, in); end > i {
			return end
		}
	}
	return i
})

// alphabetic lists the cased letters of the alphabets that deepseek-llm's pattern spells
// out, as Unicode had them then.
var alphabetic = [...][2]rune{
	{0x41, 0x5A}, {0x61, 0x7A}, {0xB5, 0xB5}, {0xC0, 0xD6}, {0xD8, 0xF6}, {0xF8, 0x1BA},
	{0x1BC, 0x1BF}, {0x1C4, 0x293}, {0x295, 0x2AF}, {0x370, 0x373}, {0x376, 0x377}, {0x37B, 0x37D},
	{0x37F, 0x37F}, {0x386, 0x386}, {0x388, 0x38A}, {0x38C, 0x38C}, {0x38E, 0x3A1}, {0x3A3, 0x3F5},
	{0x3F7, 0x481}, {0x48A, 0x52F}, {0x531, 0x556}, {0x10A0, 0x10C5}, {0x13A0, 0x13F5}, {0x13F8, 0x13FD},
	{0x1C90, 0x1CBA}, {0x1CBD, 0x1CBF}, {0x1D00, 0x1D2B}, {0x1D6B, 0x1D77}, {0x1D79, 0x1D9A}, {0x1E00, 0x1F15},
	{0x1F18, 0x1F1D}, {0x1F20, 0x1F45}, {0x1F48, 0x1F4D}, {0x1F50, 0x1F57}, {0x1F59, 0x1F59}, {0x1F5B, 0x1F5B},
	{0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D}, {0x1F80, 0x1FB4}, {0x1FB6, 0x1FBC}, {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4},
	{0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3}, {0x1FD6, 0x1FDB}, {0x1FE0, 0x1FEC}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC},
	{0x2102, 0x2102}, {0x2107, 0x2107}, {0x210A, 0x2113}, {0x2115, 0x2115}, {0x2119, 0x211D}, {0x2124, 0x2124},
	{0x2126, 0x2126}, {0x2128, 0x2128}, {0x212A, 0x212D}, {0x212F, 0x2134}, {0x2139, 0x2139}, {0x213C, 0x213F},
	{0x2145, 0x2149}, {0x214E, 0x214E}, {0x2183, 0x2184}, {0x2C00, 0x2C7B}, {0x2C7E, 0x2CE4}, {0x2CEB, 0x2CEE},
	{0x2CF2, 0x2CF3}, {0xA640, 0xA66D}, {0xA680, 0xA69B}, {0xA722, 0xA76F}, {0xA771, 0xA787}, {0xA78B, 0xA78E},
	{0xAB70, 0xABBF}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFF21, 0xFF3A}, {0xFF41, 0xFF5A}, {0x10400, 0x1044F},
	{0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
}

func isAlphabetic(v rune) bool {
	_, found := slices.BinarySearchFunc(alphabetic[:], v, func(r [2]rune, v rune) int {
		switch {
		case v < r[0]:
			return 1
		case v > r[1]:
			return -1
		}
		return 0
	})
	return found
}
