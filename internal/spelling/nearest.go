// Package spelling answers which of several names a user may have meant by one that is not among them. Its only function is
// pure and safe for concurrent use.
package spelling

import "strings"

// Nearest returns the candidate most like the name a user wrote, or "" if none is alike.
// Case, and the separators of other spellings (client_id, client-id), do not count.
func Nearest(name string, candidates []string) string {
	const longest = 64 // No name of ours is near this long; a longer one needs no search.
	if len(name) > longest {
		return ""
	}
	plain := plainName(name)
	best, bestDistance := "", 1+max(1, len(plain)/3)
	for _, c := range candidates {
		if d := editDistance(plain, plainName(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

func plainName(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(s))
}

// editDistance counts the bytes to insert, delete, replace or swap with their neighbour to make a into b.
func editDistance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
