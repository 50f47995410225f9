package minfer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/exp/slices"
)

// A saved chat is, little-endian: magic "MINFCHAT", u32 version, u64 length of what follows, that
// many bytes of JSON (savedChat), and the session as Session.Save writes it.
const (
	chatMagic   = "MINFCHAT"
	chatVersion = 1
	chatHead    = len(chatMagic) + 4 + 8
)

// savedChat is a conversation, and how its turns came about in tokens. Texts that are no UTF-8 keep
// their bytes, as answers may end within a character.
type savedChat struct {
	Messages []savedMessage `json:"messages"`
	History  struct {
		Text      []byte    `json:"text"`
		Untrusted []Range   `json:"untrusted"`
		Tokens    []Token   `json:"tokens"`
		Ends      []savedAt `json:"ends"`
	} `json:"history"`
}

type savedMessage struct {
	Role    string          `json:"role"`
	Content []byte          `json:"content"`
	Fields  json.RawMessage `json:"fields,omitempty"`
}

type savedAt struct {
	Text      int `json:"text"`
	Untrusted int `json:"untrusted"`
	Tokens    int `json:"tokens"`
}

// Save writes the conversation with its session, so that Model.RestoreChat goes on with it without
// evaluating anything again. Options such as tools are not saved.
func (c *Chat) Save(w io.Writer) (err error) {
	c = c.orNone()
	if c.session.isClosed() {
		return ErrClosed
	}
	defer recovered(&err, "saving a chat")
	var saved savedChat
	for _, m := range c.messages {
		saved.Messages = append(saved.Messages, savedMessage{m.Role, []byte(m.Content), m.Fields})
	}
	h := &saved.History
	h.Text, h.Untrusted, h.Tokens = []byte(c.history.text), c.history.untrusted, c.history.tokens
	for _, e := range c.history.ends {
		h.Ends = append(h.Ends, savedAt{e.text, e.untrusted, e.tokens})
	}
	body, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("minfer: saving the chat: %w", err) // fields that are no JSON
	}
	head := append([]byte(chatMagic), make([]byte, chatHead-len(chatMagic))...)
	binary.LittleEndian.PutUint32(head[len(chatMagic):], chatVersion)
	binary.LittleEndian.PutUint64(head[len(chatMagic)+4:], uint64(len(body)))
	for _, part := range [][]byte{head, body} {
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("minfer: saving the chat: %w", err)
		}
	}
	return c.session.Save(w)
}

// SaveFile writes the conversation to a file. A file of that name is replaced only when the new one
// is complete.
func (c *Chat) SaveFile(path string) error { return saveFile(path, "the chat", c.Save) }

// RestoreChat makes a chat from one that was saved with Chat.Save, on the same model and the same
// kinds of device. The conversation is the saved one, its system message included: a System among
// the options is what Clear goes back to. Nil options for the session are the defaults, whose
// context has to hold the saved tokens.
//
// An error that wraps ErrSnapshot says what does not fit or is damaged.
func (m *Model) RestoreChat(r io.Reader, session []SessionOption, opts ...ChatOption) (_ *Chat, err error) {
	if m.devices().isClosed() {
		return nil, ErrClosed
	}
	defer recovered(&err, "restoring a chat")
	saved, err := readChat(r)
	if err != nil {
		return nil, err
	}
	s, err := m.Restore(r, session...)
	if err != nil {
		return nil, err
	}
	c := s.Chat(opts...)
	c.messages = nil
	for _, m := range saved.Messages {
		c.messages = append(c.messages, Message{m.Role, string(m.Content), m.Fields})
	}
	c.history = saved.history()
	return c, nil
}

// RestoreChatFile is RestoreChat from a file.
func (m *Model) RestoreChatFile(path string, session []SessionOption, opts ...ChatOption) (*Chat, error) {
	if m.devices().isClosed() {
		return nil, ErrClosed
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	defer f.Close() // it was only read
	return m.RestoreChat(f, session, opts...)
}

// readChat reads up to where the session begins.
func readChat(r io.Reader) (*savedChat, error) {
	head := make([]byte, chatHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, readFailure(err)
	}
	if string(head[:len(chatMagic)]) != chatMagic {
		return nil, snapshotErrorf("it is no saved chat")
	}
	if v := binary.LittleEndian.Uint32(head[len(chatMagic):]); v != chatVersion {
		return nil, snapshotErrorf("it has version %d, want %d", v, chatVersion)
	}
	length := binary.LittleEndian.Uint64(head[len(chatMagic)+4:])
	const most = 1 << 30
	if length > most {
		return nil, snapshotErrorf("its conversation has %d bytes, want at most %d", length, most)
	}
	var body bytes.Buffer // which grows with what is there, not with what the head says
	if _, err := io.CopyN(&body, r, int64(length)); err != nil {
		return nil, readFailure(err)
	}
	saved := &savedChat{}
	if err := json.Unmarshal(body.Bytes(), saved); err != nil {
		return nil, &SnapshotError{Reason: "its conversation is damaged", Err: err}
	}
	if !saved.consistent() {
		return nil, snapshotErrorf("its conversation contradicts itself")
	}
	return saved, nil
}

// consistent reports whether the ends of turns lie in what they are ends in, and in order.
func (s *savedChat) consistent() bool {
	h, last := &s.History, savedAt{}
	for _, e := range h.Ends {
		if e.Text < last.Text || e.Untrusted < last.Untrusted || e.Tokens < last.Tokens {
			return false
		}
		last = e
	}
	return last.Text <= len(h.Text) && last.Untrusted <= len(h.Untrusted) && last.Tokens <= len(h.Tokens)
}

func (s *savedChat) history() history {
	h := history{text: string(s.History.Text), untrusted: s.History.Untrusted, tokens: slices.Clone(s.History.Tokens)}
	for _, e := range s.History.Ends {
		h.ends = append(h.ends, turnEnd{e.Text, e.Untrusted, e.Tokens})
	}
	return h
}
