package postgres

import (
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
