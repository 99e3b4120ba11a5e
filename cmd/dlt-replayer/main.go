// Command dlt-replayer indexes dead letters and replays them. Try dlt-replayer
// --help.
package main

import (
	"os"
	_ "time/tzdata" // Where the machine knows no time zones, as in our images.

	"github.com/kafka-redrive/redrive/internal/command"
)

// What the linker sets: the version, the commit and its date in RFC 3339.
var version, commit, date string

func main() {
	os.Exit(command.Main(execute))
}
