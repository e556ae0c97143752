package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Snapshot is the dataset of a node as an RDB, streamed by the node as to a new
// replica. It reads until io.EOF, which comes only when the node has sent all.
// It must be read steadily: a node drops a reader that stalls for its repl-timeout.
type Snapshot struct {
	// ReplicationID and Offset are the moment in the node's history.
	ReplicationID string
	Offset        int64
	// OnDisk: the node wrote the RDB to its own disk first (repl-diskless-sync no).
	OnDisk bool

	node string
	conn net.Conn
	in   *bufio.Reader
	stop func() bool
	// ctx bounds the stream, which is one call.
	ctx context.Context
	// left is what is still to come of an RDB whose size is known.
	left int64
	// mark ends an RDB whose size is not known; held is what may be its beginning.
	mark, held []byte
	done       bool
}

// snapshotSilence is how long a node may send nothing at all: repl-timeout.
const snapshotSilence = 60 * time.Second

// Snapshot asks a node to stream its dataset. The version is the server's own; a
// Valkey would otherwise write for an older one, or give up. The stream ends with
// the context; Close it in any case.
func (d Dialer) Snapshot(ctx context.Context, addr, version string) (*Snapshot, error) {
	if d.Timeout == 0 {
		d.Timeout = DefaultTimeout
	}
	conn, err := d.dial(ctx, addr)
	if err != nil {
		return nil, &Error{Node: addr, Command: connecting, Err: err}
	}
	s := &Snapshot{node: addr, conn: conn, ctx: ctx, in: bufio.NewReaderSize(silenceLimit{conn}, 64<<10)}
	s.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if command, err := s.begin(d, version); err != nil {
		_ = s.Close()
		return nil, &Error{Node: addr, Command: command, Err: s.cause(err)}
	}
	return s, nil
}

// begin logs in, agrees on the form and waits for the data to come. It returns
// the command that failed.
func (s *Snapshot) begin(d Dialer, version string) (command string, err error) {
	if d.Password != "" {
		login := []string{"AUTH", d.Password}
		if d.Username != "" {
			login = []string{"AUTH", d.Username, d.Password}
		}
		if _, err := s.ask(login...); err != nil {
			return connecting, err
		}
	}
	if version != "" {
		// A server that does not know the option does not need it.
		if _, err := s.ask("REPLCONF", "version", version); err != nil && !IsServer(err) {
			return "REPLCONF", err
		}
	}
	if _, err := s.ask("REPLCONF", "capa", "eof", "rdb-only", "1"); err != nil {
		return "REPLCONF", err
	}
	reply, err := s.ask("PSYNC", "?", "-1")
	if err != nil {
		return "PSYNC", err
	}
	words := strings.Fields(reply)
	if len(words) != 3 || words[0] != "FULLRESYNC" {
		return "PSYNC", fmt.Errorf("unexpected answer %.80q", reply)
	}
	s.ReplicationID = words[1]
	if s.Offset, err = strconv.ParseInt(words[2], 10, 64); err != nil {
		return "PSYNC", fmt.Errorf("unexpected answer %.80q", reply)
	}
	return "PSYNC", s.readSize()
}

// readSize reads the line before the data: $EOF:mark, or $size.
func (s *Snapshot) readSize() error {
	line, err := s.line()
	if err != nil {
		return err
	}
	if mark, ok := strings.CutPrefix(line, "$EOF:"); ok && len(mark) == 40 {
		s.mark = []byte(mark)
		return nil
	}
	size, ok := strings.CutPrefix(line, "$")
	if s.left, err = strconv.ParseInt(size, 10, 64); !ok || err != nil || s.left < 0 {
		return fmt.Errorf("unexpected line %.80q before the data", line)
	}
	s.OnDisk = true
	return nil
}

// ask sends a command and reads its reply, a line. An error reply is a
// ServerError.
func (s *Snapshot) ask(words ...string) (string, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(snapshotSilence)); err != nil {
		return "", err
	}
	if _, err := s.conn.Write(b.Bytes()); err != nil {
		return "", err
	}
	line, err := s.line()
	if err != nil {
		return "", err
	}
	if text, ok := strings.CutPrefix(line, "-"); ok {
		return "", ServerError(text)
	}
	text, ok := strings.CutPrefix(line, "+")
	if !ok {
		return "", fmt.Errorf("unexpected answer %.80q", line)
	}
	return text, nil
}

// line reads a line, passing over the empty ones that a node sends while it
// prepares.
func (s *Snapshot) line() (string, error) {
	for {
		line, err := s.in.ReadSlice('\n')
		if err != nil {
			return "", s.cut(err)
		}
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			return text, nil
		}
	}
}

// Read implements io.Reader. An error other than io.EOF says that the RDB is
// not whole.
func (s *Snapshot) Read(p []byte) (int, error) {
	if s.done {
		return 0, io.EOF
	}
	n, err := 0, s.ctx.Err()
	if err != nil {
		return 0, &Error{Node: s.node, Command: "PSYNC", Err: s.cause(err)}
	}
	if s.mark != nil {
		n, err = s.readToMark(p)
	} else {
		n, err = s.readSized(p)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &Error{Node: s.node, Command: "PSYNC", Err: s.cause(err)}
	}
	return n, err
}

func (s *Snapshot) readSized(p []byte) (int, error) {
	if s.left == 0 {
		s.done = true
		return 0, io.EOF
	}
	n, err := s.in.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	return n, s.cut(err)
}

// readToMark gives what comes but for the last bytes, as many as the mark has.
func (s *Snapshot) readToMark(p []byte) (int, error) {
	for len(s.held) <= len(s.mark) {
		if _, err := s.in.Peek(1); err != nil {
			return 0, s.cut(err)
		}
		more, _ := s.in.Peek(s.in.Buffered())
		s.held = append(s.held, more...)
		_, _ = s.in.Discard(len(more))
		if rest, ok := bytes.CutSuffix(s.held, s.mark); ok {
			// Size it: what is left is given without looking for the mark again.
			s.in = bufio.NewReader(bytes.NewReader(bytes.Clone(rest)))
			s.left, s.mark, s.held = int64(len(rest)), nil, nil
			return s.readSized(p)
		}
	}
	n := copy(p, s.held[:len(s.held)-len(s.mark)])
	s.held = append(s.held[:0], s.held[n:]...)
	return n, nil
}

// cut turns an end of the connection into what it is here, an error.
func (s *Snapshot) cut(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the node broke off: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// cause is the context's error where that is why the connection failed.
func (s *Snapshot) cause(err error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return err
}

// Close ends the stream.
func (s *Snapshot) Close() error {
	s.stop()
	return s.conn.Close()
}

// silenceLimit fails a read that gets nothing for too long.
type silenceLimit struct{ conn net.Conn }

func (l silenceLimit) Read(p []byte) (int, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(snapshotSilence)); err != nil {
		return 0, err
	}
	return l.conn.Read(p)
}
