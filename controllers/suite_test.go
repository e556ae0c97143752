package controllers

import (
	"os"
	"testing"

	"github.com/example/redis-operator/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }
