// Command forwarder brings failed Kafka records back to their topic when they are
// due, or to the dead letters. Try forwarder --help.
package main

import (
	"os"

	"github.com/kafka-redrive/redrive/internal/command"
)

// version is set by the linker.
var version string

func main() {
	os.Exit(command.Main(execute))
}
