package minfer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
)

// damage changes the part of a model file before its tensors: each six bytes of edits are a place,
// what to do there and a value.
func damage(model []byte, head int, edits []byte) []byte {
	model = bytes.Clone(model)
	for ; len(edits) >= 6; edits = edits[6:] {
		at := int(binary.LittleEndian.Uint16(edits)) % head
		v := binary.LittleEndian.Uint16(edits[4:])
		switch place := model[at:]; edits[2] % 6 {
		case 0:
			place[0] = byte(v)
		case 1:
			place[0] ^= 1 << (v % 8)
		case 2:
			binary.LittleEndian.PutUint32(place, uint32(v)<<(edits[3]%32))
		case 3:
			binary.LittleEndian.PutUint64(place, uint64(v)<<(edits[3]%64))
		case 4: // what lies elsewhere
			from := int(v) % head
			copy(place[:min(int(edits[3]), len(place))], model[from:])
		case 5:
			model = model[:max(len(model)-int(v), head+16)]
		}
	}
	return model
}

// FuzzModel opens damaged models and does with those that open what can be done with a model. No
// panic of the library may come out, whatever the file says of itself.
func FuzzModel(f *testing.F) {
	models := [][]byte{
		smallModel{vocab: 257, embed: gguf.TypeQ8_0, ffn: gguf.TypeF16, template: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"}.bytes(f),
		smallModel{vocab: 260, untied: true, keys: map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(2), "llama.pooling_type": uint32(1)}}.bytes(f),
		readFile(f, storyteller),
	}
	var heads []int
	for _, m := range models {
		file, err := gguf.NewBytes(m)
		if err != nil {
			f.Fatal(err)
		}
		heads = append(heads, int(file.Tensors()[0].Offset))
	}
	f.Add(uint8(0), []byte(nil))
	f.Add(uint8(1), []byte(nil))
	f.Add(uint8(2), []byte(nil))
	f.Add(uint8(0), []byte{60, 0, 0, 0, 9, 0, 0, 1, 2, 3, 4, 5})
	for kind, m := range models {
		// The number behind every key and in every tensor, made large.
		for _, text := range []string{"block_count", "context_length", "embedding_length", "head_count", "head_count_kv", "feed_forward_length", "eos_token_id",
			"pooling_type", "tokens", "token_type", "merges", "scaling.factor", "rms_epsilon", "token_embd.weight", "attn_k.weight", "ffn_up.weight", "output_norm.weight"} {
			at := bytes.Index(m, []byte(text))
			if at < 0 || at > 1<<16 {
				continue
			}
			at += len(text) + 4
			for _, value := range []byte{0, 1, 7, 255} {
				f.Add(uint8(kind), []byte{byte(at), byte(at >> 8), 2, 0, value, 0})
				f.Add(uint8(kind), []byte{byte(at), byte(at >> 8), 2, 20, value, 0})
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, edits []byte) {
		which := int(kind) % len(models)
		data := damage(models[which], heads[which], edits)
		m, err := minfer.OpenBytes(data, minfer.WithThreads(1))
		notOurs(t, "opening", err)
		if err != nil {
			return
		}
		defer m.Close()
		use(t, m)
		if len(edits)%48 == 6 { // files are slow
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := minfer.Estimate(path, 0, 0); err != nil {
				notOurs(t, "estimating", err)
			}
		}
	})
}

// use does what can be done with a model.
func use(t *testing.T, m *minfer.Model) {
	ctx := t.Context()
	s, err := m.NewSession(minfer.WithContext(min(m.Info().ContextLength, 64)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Eval(ctx, []minfer.Token{0, 1, 2})
	notOurs(t, "evaluating", err)
	_, err = read(s.Generate(ctx, "Hello, \xff🙂 <|im_end|>", minfer.MaxTokens(4), minfer.ParseSpecial()))
	notOurs(t, "generating", err)
	_, err = read(s.Generate(ctx, "Hello", minfer.MaxTokens(3), minfer.WithRegexp("[a-z]{5}")))
	notOurs(t, "generating by a form", err)
	_, err = read(s.Chat(minfer.System("Be kind.")).Say(ctx, "Hello", minfer.MaxTokens(4)))
	notOurs(t, "saying", err)
	_, err = m.Embed(ctx, []string{"Hello", "a"})
	notOurs(t, "embedding", err)
	notOurs(t, "saving", s.Save(discard{}))
	_, err = m.Placement()
	notOurs(t, "placing", err)
	m.Tokenizer().Decode(s.Tokens(), minfer.DecodeOptions{Special: true})
}

// notOurs allows every error but the library's own faults.
func notOurs(t *testing.T, doing string, err error) {
	t.Helper()
	var panicked *minfer.PanicError
	if errors.As(err, &panicked) || errors.Is(err, minfer.ErrFault) {
		t.Errorf("%s: %v", doing, err)
	}
}
