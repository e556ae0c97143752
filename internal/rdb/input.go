package rdb

import (
	"encoding/binary"
	"errors"
	"hash/crc64"
	"io"
	"math/bits"
)

// table is of the polynomial of Jones, which both engines use.
var table = crc64.MakeTable(bits.Reverse64(0xad93d23594c935a9))

// bufferSize is what is read and summed at once.
const bufferSize = 64 << 10

// input is a buffered reader that knows the checksum of what was taken from it.
type input struct {
	from io.Reader
	buf  []byte
	// pos is how much of buf was taken; before is what was before buf.
	pos, end int
	before   int64
	// crc is of what was before buf, in the form of hash/crc64, which begins with
	// and returns the complement of what the servers use.
	crc uint64
	err error
}

func newInput(r io.Reader) *input {
	return &input{from: r, buf: make([]byte, bufferSize), crc: ^uint64(0)}
}

func (in *input) offset() int64 { return in.before + int64(in.pos) }

func (in *input) checksum() uint64 { return ^crc64.Update(in.crc, table, in.buf[:in.pos]) }

// fill reads on, once all that was read has been taken.
func (in *input) fill() error {
	if in.err != nil {
		return in.err
	}
	in.crc = crc64.Update(in.crc, table, in.buf[:in.end])
	in.before += int64(in.end)
	in.pos, in.end = 0, 0
	for in.end == 0 && in.err == nil {
		in.end, in.err = in.from.Read(in.buf)
	}
	if in.end > 0 {
		return nil
	}
	return in.err
}

func (in *input) byte() (byte, error) {
	if in.pos == in.end {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	b := in.buf[in.pos]
	in.pos++
	return b, nil
}

func (in *input) full(p []byte) error {
	for i := range p {
		b, err := in.byte()
		if err != nil {
			return err
		}
		p[i] = b
	}
	return nil
}

func (in *input) skip(n uint64) error {
	for {
		here := uint64(in.end - in.pos)
		if n <= here {
			in.pos += int(n)
			return nil
		}
		n -= here
		in.pos = in.end
		if err := in.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

func littleEndian(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }
