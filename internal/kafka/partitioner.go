package kafka

import (
	"fmt"
	"hash/crc32"
)

// Partitioner names the function by which a topic's producers choose the partition
// of a record that has a key.
type Partitioner string

// The partitioners of the clients in use.
const (
	// Murmur2 is the default of the Java client and of franz-go.
	Murmur2 Partitioner = "murmur2"
	// CRC32 is the default of librdkafka (consistent_random), and so of its
	// bindings for Python, .NET, Go (confluent), PHP and Rust.
	CRC32 Partitioner = "crc32"
	// FNV1a is the default of Sarama (NewHashPartitioner).
	FNV1a Partitioner = "fnv1a"
)

// ParsePartitioner returns the partitioner of that name.
func ParsePartitioner(name string) (Partitioner, error) {
	switch p := Partitioner(name); p {
	case Murmur2, CRC32, FNV1a:
		return p, nil
	default:
		return "", fmt.Errorf("partitioner %q: want %s, %s or %s", name, Murmur2, CRC32, FNV1a)
	}
}

// Partition returns the partition of key among n. It says where the *hash* puts
// the bytes: for a null key no client asks the hash, so the caller must decide on
// its own; an empty key is a key. The librdkafka default is an exception that
// callers need not know: it treats an empty key like a null one, which is random.
//
// It panics on a name that ParsePartitioner refuses and if n is below 1.
func (p Partitioner) Partition(key []byte, n int) int {
	if n < 1 {
		panic(fmt.Sprintf("kafka: partition of a key among %d", n))
	}
	switch p {
	case Murmur2:
		return int(murmur2(key)&0x7fffffff) % n
	case CRC32:
		return int(int64(crc32.ChecksumIEEE(key)) % int64(n))
	case FNV1a:
		// Sarama takes the remainder of the hash as a signed number and then the
		// absolute value, which is not where the Java rule (mask the sign) puts it.
		signed := int32(fnv1a(key)) // The wrap to a negative number is the rule.
		remainder := int(signed) % n
		return max(remainder, -remainder)
	default:
		panic(fmt.Sprintf("kafka: unknown partitioner %q", string(p)))
	}
}

// murmur2 is the 32-bit MurmurHash2 with the seed of the Java client.
func murmur2(key []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(key))
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// fnv1a is the 32-bit FNV-1a. The standard library has it only behind an
// interface, which costs an allocation for each record.
func fnv1a(key []byte) uint32 {
	h := uint32(2166136261)
	for _, b := range key {
		h ^= uint32(b)
		h *= 16777619
	}
	return h
}
