package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
)

const (
	// Port is where every server listens for clients, at its own address.
	Port = 6379
	// BusPort is where it listens for the cluster bus.
	BusPort = Port + 10000
	// lockPort is where the test holds the address.
	lockPort = 16378
)

// Address reserves a loopback address that nobody listens at, until the test
// ends: what Start gives to each server.
func Address(t testing.TB) netip.Addr {
	t.Helper()
	for {
		// 127.64.0.1 to 127.127.255.254. Chance only spreads the attempts of
		// processes; the lock decides.
		ip := netip.AddrFrom4([4]byte{127, byte(64 + rand.IntN(64)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
		lock, err := net.Listen("tcp", netip.AddrPortFrom(ip, lockPort).String())
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatalf("redistest: reserve a loopback address: %v (all of 127.0.0.0/8 must be local, as on Linux)", err)
		}
		t.Cleanup(func() { _ = lock.Close() })
		for _, port := range []uint16{Port, BusPort} {
			free, err := net.Listen("tcp", netip.AddrPortFrom(ip, port).String())
			if err != nil {
				t.Fatalf("redistest: something listens on port %s of all addresses of this machine, stop it: %v", strconv.Itoa(int(port)), err)
			}
			_ = free.Close()
		}
		return ip
	}
}
