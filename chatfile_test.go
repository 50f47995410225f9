package minfer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
)

// TestSavedChats saves conversations and goes on with them elsewhere: nothing but the new turn is
// evaluated, and what is said is what would have been said without.
func TestSavedChats(t *testing.T) {
	m := openStoryteller(t)
	chat := newSession(t, m).Chat(minfer.System("Be kind."))
	hot := short(minfer.Temperature(3), minfer.TopK(0), minfer.MinP(0), minfer.TopP(1), minfer.Seed(2))
	mustRead(t, chat.Say(t.Context(), "Hello <|im_end|> \xff", hot...)) // tokens that the text would not give again
	mustRead(t, chat.Say(t.Context(), "What is 3 + 4?", minfer.Temperature(0)))
	path := filepath.Join(t.TempDir(), "chat")
	if err := chat.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	restored, err := openStoryteller(t).RestoreChatFile(path, nil, minfer.System("Be kind."))
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Session().Close()
	if diff := cmp.Diff(chat.Messages(), restored.Messages()); diff != "" {
		t.Errorf("the conversation has changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(chat.Session().Tokens(), restored.Session().Tokens()); diff != "" {
		t.Errorf("the sequence has changed (-want +got):\n%s", diff)
	}
	before := len(chat.Session().Tokens())
	want := mustRead(t, chat.Say(t.Context(), "Count to 5.", minfer.Temperature(0)))
	got := mustRead(t, restored.Say(t.Context(), "Count to 5.", minfer.Temperature(0)))
	if diff := cmp.Diff(want.tokens, got.tokens); diff != "" {
		t.Errorf("the answers differ (-want +got):\n%s", diff)
	}
	// A block that is partly in use is evaluated again.
	if u := restored.Session().Usage(); u.Cached < before-16 {
		t.Errorf("of %d tokens %d were kept", before, u.Cached)
	}
	restored.Clear()
	if messages := restored.Messages(); len(messages) != 1 || messages[0].Content != "Be kind." {
		t.Errorf("after Clear: %v", messages)
	}
	if _, err := m.RestoreChatFile(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a file that is not there can be restored")
	}
}

// TestDamagedChats restores files that are cut, changed, or of something else.
func TestDamagedChats(t *testing.T) {
	m := openStoryteller(t)
	chat := newSession(t, m).Chat()
	mustRead(t, chat.Say(t.Context(), "Hello", short()...))
	var file bytes.Buffer
	if err := chat.Save(&file); err != nil {
		t.Fatal(err)
	}
	good := file.Bytes()
	refused := func(name string, data []byte) {
		t.Helper()
		_, err := m.RestoreChat(bytes.NewReader(data), nil)
		if !errors.Is(err, minfer.ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 0; n < len(good); n += 1 + n/8 {
		refused("cut", good[:n])
	}
	change := func(at int, b byte) []byte {
		data := bytes.Clone(good)
		data[at] ^= b
		return data
	}
	refused("magic", change(0, 1))
	refused("version", change(8, 4))
	refused("length", change(19, 0x80))
	huge := bytes.Clone(good)
	binary.LittleEndian.PutUint64(huge[12:], 1<<29)
	refused("longer than there is", huge)
	refused("JSON", change(20, 1))
	refused("session", change(len(good)-1, 1))
	text := strings.Replace(string(good), `"ends":[{"text":`, `"ends":[{"text":9`, 1)
	refused("length of JSON", []byte(text))
	longer := []byte(text)
	binary.LittleEndian.PutUint64(longer[12:], binary.LittleEndian.Uint64(good[12:])+1)
	refused("contradiction", longer)
	var session bytes.Buffer
	if err := chat.Session().Save(&session); err != nil {
		t.Fatal(err)
	}
	refused("a session", session.Bytes())
	failure := errors.New("no more")
	if _, err := m.RestoreChat(io.MultiReader(bytes.NewReader(good[:9]), failingReader{failure}), nil); !errors.Is(err, failure) {
		t.Errorf("reading fails: %v", err)
	}
	if err := chat.Save(failingWriter{failure}); !errors.Is(err, failure) {
		t.Errorf("writing fails: %v", err)
	}
	chat.SetMessages([]minfer.Message{{Role: "user", Fields: []byte("{")}})
	if err := chat.Save(io.Discard); err == nil {
		t.Error("fields that are no JSON are saved")
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
