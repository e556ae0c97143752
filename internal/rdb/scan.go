// Package rdb reads an RDB, the dump of a Redis or Valkey server, as it streams
// by, to tell whether it is whole and how much is in it. It keeps nothing of it.
package rdb

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Summary is what a whole RDB holds.
type Summary struct {
	// Magic is how the file begins: "REDIS0010", "VALKEY080".
	Magic string
	// Keys counts the keys of all databases, also those that have expired and are
	// still there.
	Keys int64
	// Functions counts the function libraries.
	Functions int64
	// Bytes is the size of the RDB.
	Bytes int64
	// Unchecked: the server wrote no checksum (rdbchecksum no).
	Unchecked bool
}

// Valkey tells whether only a Valkey server can read it.
func (s *Summary) Valkey() bool { return strings.HasPrefix(s.Magic, "VALKEY") }

// ErrFormat is in every error that comes from the bytes and not from reading them.
var ErrFormat = errors.New("not a sound RDB")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Scan reads an RDB to its end, which must be the end of r, and checks its
// structure and its checksum. The memory it needs does not depend on the data.
// A kind of value that it does not know is an error, because nothing after it
// could be counted.
func Scan(r io.Reader) (Summary, error) {
	s := &scanner{in: newInput(r)}
	err := s.scan()
	s.sum.Bytes = s.in.offset()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = malformed("it ends after %d bytes, in the middle: %v", s.sum.Bytes, err)
	}
	return s.sum, err
}

// The opcodes; what is below them is the type of a value.
const (
	opSlotImport = 243 // Valkey; Redis has the metadata of a key there
	opSlotInfo   = 244
	opFunction   = 245
	opModuleAux  = 247
	opIdle       = 248
	opFreq       = 249
	opAux        = 250
	opResizeDB   = 251
	opExpireMS   = 252
	opExpire     = 253
	opSelectDB   = 254
	opEOF        = 255
)

type scanner struct {
	in  *input
	sum Summary
}

func (s *scanner) scan() error {
	if err := s.magic(); err != nil {
		return err
	}
	for {
		op, err := s.in.byte()
		if err != nil {
			return err
		}
		if op == opEOF {
			return s.end()
		}
		if err := s.item(op); err != nil {
			return err
		}
	}
}

func (s *scanner) magic() error {
	var head [9]byte
	if err := s.in.full(head[:]); err != nil {
		return err
	}
	text := string(head[:])
	digits, ok := strings.CutPrefix(text, "REDIS")
	if !ok {
		digits, ok = strings.CutPrefix(text, "VALKEY")
	}
	if !ok || strings.Trim(digits, "0123456789") != "" {
		return malformed("it begins with %q", text)
	}
	s.sum.Magic = text
	return nil
}

// end checks the checksum, which is of all bytes before it, and that nothing
// follows.
func (s *scanner) end() error {
	want := s.in.checksum()
	var sum [8]byte
	if err := s.in.full(sum[:]); err != nil {
		return err
	}
	got := littleEndian(sum[:])
	if got == 0 {
		s.sum.Unchecked = true
	} else if got != want {
		return malformed("its checksum is %016x, that of the data is %016x", got, want)
	}
	switch _, err := s.in.byte(); {
	case err == nil:
		return malformed("bytes follow its end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// item reads what follows one opcode.
func (s *scanner) item(op byte) error {
	switch op {
	case opSlotImport:
		if !s.sum.Valkey() {
			return malformed("it holds metadata of keys (opcode %d), of a Redis that is too new for this program", op)
		}
		return s.slotImport()
	case opSlotInfo:
		return s.lengths(3)
	case opFunction:
		s.sum.Functions++
		return s.text()
	case opModuleAux:
		return s.module()
	case opIdle, opSelectDB:
		return s.lengths(1)
	case opFreq:
		return s.in.skip(1)
	case opAux:
		return s.texts(2)
	case opResizeDB:
		return s.lengths(2)
	case opExpireMS:
		return s.in.skip(8)
	case opExpire:
		return s.in.skip(4)
	}
	if err := s.text(); err != nil { // the key
		return err
	}
	s.sum.Keys++
	return s.value(op)
}

// slotImport: the name of the job and the ranges of slots.
func (s *scanner) slotImport() error {
	if err := s.text(); err != nil {
		return err
	}
	ranges, err := s.length()
	if err != nil {
		return err
	}
	return s.repeat(ranges, func() error { return s.lengths(2) })
}
