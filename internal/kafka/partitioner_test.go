package kafka

import (
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A Java client puts the key on (hash & 0x7fffffff) % n; the hashes are those of
// Kafka's own UtilsTest.
func TestMurmur2IsTheHashOfTheJavaClient(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestPartitionOfKnownKeys(t *testing.T) {
	tests := []struct {
		partitioner Partitioner
		key         string
		n           int
		want        int
	}{
		{Murmur2, "21", 1000, 340}, // -973932308 without its sign bit.
		{Murmur2, "abc", 1000, 107},
		{CRC32, "123456789", 1000, 262}, // 0xcbf43926, the check value of CRC-32.
		{CRC32, "", 1000, 0},
		{FNV1a, "", 1000, 35},        // 0x811c9dc5 is -2128831035 with a sign.
		{FNV1a, "a", 1000, 76},       // 0xe40c292c is -468965076.
		{FNV1a, "foobar", 1000, 576}, // 0xbf9cf968 is -1080231576.
	}
	for _, tt := range tests {
		if got := tt.partitioner.Partition([]byte(tt.key), tt.n); got != tt.want {
			t.Errorf("%s.Partition(%q, %d) = %d, want %d", tt.partitioner, tt.key, tt.n, got, tt.want)
		}
	}
}

func TestPartitionersAgreeWithKgo(t *testing.T) {
	references := map[Partitioner]kgo.Partitioner{
		Murmur2: kgo.StickyKeyPartitioner(nil),
		CRC32:   kgo.StickyKeyPartitioner(kgo.SaramaHasher(crc32.ChecksumIEEE)),
		FNV1a: kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(func(key []byte) uint32 {
			h := fnv.New32a()
			_, _ = h.Write(key)
			return h.Sum32()
		})),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for partitioner, reference := range references {
		topic := reference.ForTopic("orders")
		for range 20_000 {
			key := make([]byte, random.IntN(40))
			for i := range key {
				key[i] = byte(random.Uint32())
			}
			n := 1 + random.IntN(300)
			if got, want := partitioner.Partition(key, n), topic.Partition(&kgo.Record{Key: key}, n); got != want {
				t.Fatalf("%s.Partition(%x, %d) = %d, kgo says %d", partitioner, key, n, got, want)
			}
		}
	}
}

func TestPartitionDoesNotAllocate(t *testing.T) {
	key := []byte("customer-4711")
	for _, p := range []Partitioner{Murmur2, CRC32, FNV1a} {
		if n := testing.AllocsPerRun(100, func() { p.Partition(key, 12) }); n != 0 {
			t.Errorf("%s: %v allocations", p, n)
		}
	}
}

func TestParsePartitionerKnowsItsNames(t *testing.T) {
	for _, name := range []string{"murmur2", "crc32", "fnv1a"} {
		if p, err := ParsePartitioner(name); err != nil || string(p) != name {
			t.Errorf("ParsePartitioner(%q) = %q, %v", name, p, err)
		}
	}
	if _, err := ParsePartitioner("Murmur2"); err == nil {
		t.Error("ParsePartitioner took a name that is none")
	}
}

func BenchmarkPartition(b *testing.B) {
	key := []byte("customer-4711-eu-west")
	for _, p := range []Partitioner{Murmur2, CRC32, FNV1a} {
		b.Run(string(p), func(b *testing.B) {
			for b.Loop() {
				p.Partition(key, 12)
			}
		})
	}
}
