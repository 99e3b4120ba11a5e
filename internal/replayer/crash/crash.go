//go:build !crashpoints

// Package crash answers nothing in a program that is shipped. In one that is built with the tag crashpoints a point that
// TEST_CRASH_POINT names kills the process there, as kill -9 would: the kill tests reach each gap between two effects with it.
package crash

// Point is a place between two effects.
func Point(string) {}
