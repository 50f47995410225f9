"""Writes pieces.json: what the pre-tokenizer patterns make of random text, by Python's regex module.

    pip install regex; python3 pieces.py [seed [texts per pattern [length]]] > pieces.json

Patterns as in the models' tokenizer.json; each cuts the pieces of the one before, matches and what lies between them are pieces.
"""
import json, random, sys, unicodedata
import regex

ENGLISH = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
def words(first, digits, tail=r"[\r\n]*", word=r"\p{L}"):
    return first + r"[^\r\n\p{L}\p{N}]?[%s]+|%s| ?[^\s%s\p{N}]+%s|" % (word, digits, word, tail) + SPACES
E = "(?:" + ENGLISH + ")|"
U, W = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
def cases(digits, suffix, tail=r"[\r\n/]*"):
    p = r"[^\r\n\p{L}\p{N}]?"
    return "%s[%s]*[%s]+%s|%s[%s]+[%s]*%s|%s| ?[^\\s\\p{L}\\p{N}]+%s|%s" % (p, U, W, suffix, p, U, W, suffix, digits, tail, SPACES)
def han(set): return "[[%s]--[\\p{Han}]]" % set
KIMI = r"[\p{Han}]+|" + cases(r"\p{N}{1,3}", "(?:" + ENGLISH + ")?", r"[\r\n]*").replace("[%s]" % U, han(U)).replace("[%s]" % W, han(W))
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CJKH = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
PUNCTUATED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"""
ASIAN = "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
ALPHABETIC = "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
CLAUSE = " ?[^(\\s|.,!?…。，、।۔،)]+"
YOUTU = "[\uac00-\ud7a3\u3131-\u318e]+|[！…“”‘’—：；，\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u30ff]+"
CASCADE = "|".join(r"\s{%d}(?!\S)" % (1 << k) for k in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"

PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [words(E, r"\p{N}{1,3}")],
    "qwen2": [words(E, r"\p{N}")],
    "qwen35": [words(E, r"\p{N}", word=r"\p{L}\p{M}")],
    "ufakzeka": [words("", r"\p{N}")],
    "seed-coder": [E + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES],
    "bailingmoe": [r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "exaone-moe": [E + r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", words(E, r"\p{N}+")],
    "laguna": [r"[^\n]+|[\n]+", words(E, r"\p{N}")],
    "jais-2": [words(E, r"\p{N}{1,3}").replace(SPACES, r"\s*[\r\n]+|" + CASCADE)],
    "gpt-4o": [cases(r"\p{N}{1,3}", "(?:" + ENGLISH + ")?")],
    "tekken": [cases(r"\p{N}", "")],
    "kimi-k2": [KIMI],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", cases(r"\p{N}{1,3}", "(?:" + ENGLISH + ")?")],
    "youtu": [YOUTU, cases(r"\p{N}", "(?:" + ENGLISH + ")?")],
    "deepseek-llm": ["[\r\n]", "\\s?[" + ALPHABETIC + "]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+$", CJKH, "\\p{N}+"],
    "deepseek-coder": ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJKH, "\\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, PUNCTUATED + r"[\r\n]*|" + SPACES],
    "spark2_5": [r"\p{N}{1,3}", CJK, PUNCTUATED + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN, PUNCTUATED + r"[\r\n]*|" + SPACES],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "bloom": [CLAUSE],
    "viking": [CLAUSE, r"\p{N}"],
}

POOL = [" "] * 12 + list("aabcstmdrevlABCSTMDREVL''''''''\"!?.,;:/()[]{}<>|~`^$+=_-#@%&*\\") + list("00123456789") + \
    ["\n", "\r", "\r\n", "\n\n", "\t", "\x0b", "\x0c", "\x00", "\x1f", "\x7f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u3000", "\u200b", "\u200d", "\ufeff", "\ufffd"] + \
    list("éÉßµªºńŃДджЖΩωǅʰˆاب٣١٠कखािী१২ไทยก่า가각힣ㄱㅎㄅㄯ漢字一龥鿿㐀々〇ぁひカー゠ヿ･ﾟ") + \
    ["\u0301", "\u0308", "\u093f", "\u20dd", "\ufe0f", "½", "Ⅻ", "①", "１", "２", "৳", "€", "£", "±", "×", "°", "…", "。", "，", "、", "।", "۔", "،", "“", "”", "—", "！", "～", "‿", "🙂", "👨‍👩‍👧", "𝒜", "𐐀", "𞤃", "\U0001f1eb", "\u0378", "\ue000", "\U000e0001", "ſ", "K"]

def isolate(pieces, pattern):
    p, out = regex.compile(pattern, regex.V1 if "--" in pattern else regex.V0), []
    for s in pieces:
        at = 0
        for m in p.finditer(s):
            if m.start() > at: out.append(s[at:m.start()])
            if m.end() > m.start(): out.append(m.group())
            at = m.end()
        if at < len(s): out.append(s[at:])
    return out

def text(rnd, length):
    out = []
    while len(out) < length:
        c = rnd.choice(POOL)
        out.append(c * rnd.choice([1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 7]))
        if rnd.random() < .15: out.append(rnd.choice(["It's", "WE'LL", "camelCaseHTTP", "1234567", "  \n \n  x", "    ", "don't", "x=(12,89)\n\n\n  y", "漢字かな", "école'S "]))
    return "".join(out)

seed, count, length = [int(a) for a in sys.argv[1:]] + [1, 12, 25][len(sys.argv) - 1:]
rnd = random.Random(seed)
result = {}
for name, stages in PATTERNS.items():
    rows = []
    for _ in range(count):
        pieces = [unicodedata.normalize("NFC", text(rnd, rnd.randint(1, length)))]
        for p in stages: pieces = isolate(pieces, p)
        rows.append(pieces)
    result[name] = rows
json.dump(result, sys.stdout, ensure_ascii=True, separators=(",", ":"))
print()
