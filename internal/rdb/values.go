package rdb

// The types of values, in the order of their numbers.
const (
	typeString        = 0
	typeList          = 1
	typeSet           = 2
	typeZSet          = 3
	typeHash          = 4
	typeZSet2         = 5
	typeModule2       = 7
	typeHashZipmap    = 9
	typeListZiplist   = 10
	typeSetIntset     = 11
	typeZSetZiplist   = 12
	typeHashZiplist   = 13
	typeListQuick     = 14
	typeStream        = 15
	typeHashListpack  = 16
	typeZSetListpack  = 17
	typeListQuick2    = 18
	typeStream2       = 19
	typeSetListpack   = 20
	typeStream3       = 21
	typeHashValkeyTTL = 22 // of Valkey 9; a draft in Redis that no release wrote
	typeHashRedisTTL  = 24
	typeHashLPTTL     = 25
)

// value reads over a value of a type.
func (s *scanner) value(kind byte) error {
	switch kind {
	case typeString, typeHashZipmap, typeListZiplist, typeSetIntset, typeZSetZiplist, typeHashZiplist,
		typeHashListpack, typeZSetListpack, typeSetListpack:
		return s.text()
	case typeList, typeSet, typeListQuick:
		return s.counted(s.text)
	case typeHash:
		return s.counted(func() error { return s.texts(2) })
	case typeZSet:
		return s.counted(s.oldScore)
	case typeZSet2:
		return s.counted(func() error { return s.textThen(8) })
	case typeListQuick2:
		return s.counted(func() error { return s.lengthThenTexts(1) })
	case typeStream, typeStream2, typeStream3:
		return s.stream(kind)
	case typeModule2:
		return s.module()
	case typeHashValkeyTTL:
		if s.sum.Valkey() {
			return s.counted(func() error {
				if err := s.text(); err != nil {
					return err
				}
				return s.textThen(8)
			})
		}
	case typeHashRedisTTL:
		if err := s.in.skip(8); err != nil { // the earliest of them
			return err
		}
		return s.counted(func() error { return s.lengthThenTexts(2) })
	case typeHashLPTTL:
		if err := s.in.skip(8); err != nil {
			return err
		}
		return s.text()
	}
	return malformed("a value has type %d, which this program does not know in %s", kind, s.sum.Magic)
}

// oldScore: a member and its score in decimal, or one of three special lengths.
func (s *scanner) oldScore() error {
	if err := s.text(); err != nil {
		return err
	}
	size, err := s.in.byte()
	if err != nil || size >= 253 {
		return err
	}
	return s.in.skip(uint64(size))
}

// stream: its entries, its ids and its consumer groups.
func (s *scanner) stream(kind byte) error {
	if err := s.counted(func() error { return s.texts(2) }); err != nil {
		return err
	}
	ids := 3
	if kind >= typeStream2 {
		ids += 5
	}
	if err := s.lengths(ids); err != nil {
		return err
	}
	return s.counted(func() error { return s.group(kind) })
}

func (s *scanner) group(kind byte) error {
	if err := s.text(); err != nil {
		return err
	}
	ids := 2
	if kind >= typeStream2 {
		ids++
	}
	if err := s.lengths(ids); err != nil {
		return err
	}
	pending := func() error {
		if err := s.in.skip(16 + 8); err != nil { // id, time of delivery
			return err
		}
		return s.lengths(1)
	}
	if err := s.counted(pending); err != nil {
		return err
	}
	times := uint64(8)
	if kind >= typeStream3 {
		times += 8
	}
	return s.counted(func() error {
		if err := s.textThen(times); err != nil {
			return err
		}
		return s.counted(func() error { return s.in.skip(16) })
	})
}

// module reads over a module's data: its id, then marked values up to an end.
func (s *scanner) module() error {
	if err := s.lengths(1); err != nil {
		return err
	}
	for {
		mark, err := s.length()
		if err != nil {
			return err
		}
		switch mark {
		case 0:
			return nil
		case 1, 2: // signed, unsigned
			err = s.lengths(1)
		case 3: // float
			err = s.in.skip(4)
		case 4: // double
			err = s.in.skip(8)
		case 5:
			err = s.text()
		default:
			return malformed("a module's value has mark %d", mark)
		}
		if err != nil {
			return err
		}
	}
}

// counted reads a number and then that many items.
func (s *scanner) counted(item func() error) error {
	n, err := s.length()
	if err != nil {
		return err
	}
	return s.repeat(n, item)
}

func (s *scanner) repeat(n uint64, item func() error) error {
	for ; n > 0; n-- {
		if err := item(); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) texts(n uint64) error { return s.repeat(n, s.text) }

func (s *scanner) textThen(bytes uint64) error {
	if err := s.text(); err != nil {
		return err
	}
	return s.in.skip(bytes)
}

func (s *scanner) lengthThenTexts(n uint64) error {
	if err := s.lengths(1); err != nil {
		return err
	}
	return s.texts(n)
}

// text reads over a string: plain, a number in binary, or compressed by LZF.
func (s *scanner) text() error {
	n, encoded, err := s.prefix()
	if err != nil {
		return err
	}
	if !encoded {
		return s.in.skip(n)
	}
	switch n {
	case 0, 1, 2:
		return s.in.skip(1 << n)
	case 3:
		size, err := s.length()
		if err != nil {
			return err
		}
		if err := s.lengths(1); err != nil {
			return err
		}
		return s.in.skip(size)
	}
	return malformed("a string has encoding %d", n)
}

// lengths reads over n lengths.
func (s *scanner) lengths(n int) error {
	for ; n > 0; n-- {
		if _, err := s.length(); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) length() (uint64, error) {
	n, encoded, err := s.prefix()
	if err == nil && encoded {
		return 0, malformed("a length is encoded as a string")
	}
	return n, err
}

// prefix reads a length, or the number of a string's encoding.
func (s *scanner) prefix() (n uint64, encoded bool, err error) {
	first, err := s.in.byte()
	if err != nil {
		return 0, false, err
	}
	more := 0
	switch {
	case first>>6 == 0:
		return uint64(first), false, nil
	case first>>6 == 3:
		return uint64(first & 0x3f), true, nil
	case first>>6 == 1:
		n, more = uint64(first&0x3f), 1
	case first == 0x80:
		more = 4
	case first == 0x81:
		more = 8
	default:
		return 0, false, malformed("a length begins with byte %#x", first)
	}
	for ; more > 0; more-- {
		b, err := s.in.byte()
		if err != nil {
			return 0, false, err
		}
		n = n<<8 | uint64(b)
	}
	return n, false, nil
}
