// Command dlt-replayer indexes dead letters and replays them. Try dlt-replayer
// --help.
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
