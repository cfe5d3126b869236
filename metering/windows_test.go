package metering_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

var granularities = metering.Hour.Values()

func zone(t require.TestingT, name string) *time.Location {
	location, err := metering.LoadLocation(name)
	require.NoError(t, err)
	return location
}

func instant(t require.TestingT, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UTC()
}

func span(t require.TestingT, start, end string) metering.Range {
	return metering.Range{Start: instant(t, start), End: instant(t, end)}
}

// ruled returns a zone that is defined by a rule instead of a list of transitions. The zone data embedded in
// Go binaries use rules, and the data of many systems use lists. Windows must be equal with both.
func ruled(t require.TestingT, name, rule string, standard int32) *time.Location {
	header := func() []byte {
		h := append([]byte("TZif2"), make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, 1, 1, 4} { // counts of the header: one transition, one time type, four characters
			h = binary.BigEndian.AppendUint32(h, n)
		}
		return h
	}
	body := func(width int) []byte {
		b := make([]byte, width+1) // the transition, at 1970, and its type
		b = binary.BigEndian.AppendUint32(b, uint32(standard))
		return append(b, 0, 0, 'S', 'T', 'D', 0)
	}
	file := append(append(header(), body(4)...), append(header(), body(8)...)...)
	location, err := time.LoadLocationFromTZData(name, append(file, "\n"+rule+"\n"...))
	require.NoError(t, err)
	return location
}

func TestWindowOf(t *testing.T) {
	cases := []struct {
		name, zone, at string
		granularity    metering.Granularity
		start, end     string
	}{
		{"AnHourOfUTC", "UTC", "2026-11-03T10:20:00Z", metering.Hour, "2026-11-03T10:00:00Z", "2026-11-03T11:00:00Z"},
		{"TheStartOfAWindowLiesInIt", "UTC", "2026-11-01T00:00:00Z", metering.Month, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"FebruaryOfALeapYear", "UTC", "2028-02-29T23:59:59Z", metering.Month, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"DecemberEndsWithTheYear", "UTC", "2026-12-31T23:59:59Z", metering.Month, "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"AnHourBefore1970", "UTC", "1969-12-31T23:59:59Z", metering.Hour, "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},

		{"AnHourOfTheFarFuture", "Asia/Kathmandu", "9999-12-31T22:59:59Z", metering.Hour, "9999-12-31T22:15:00Z", "9999-12-31T23:15:00Z"},
		{"AnHourOfTheFirstCentury", "UTC", "0001-01-01T00:00:00Z", metering.Hour, "0001-01-01T00:00:00Z", "0001-01-01T01:00:00Z"},

		{"AKathmanduHourBeginsAtAQuarterPast", "Asia/Kathmandu", "2026-11-03T10:20:00Z", metering.Hour, "2026-11-03T10:15:00Z", "2026-11-03T11:15:00Z"},
		{"AKathmanduDayBeginsAt1815", "Asia/Kathmandu", "2026-11-03T18:15:00Z", metering.Day, "2026-11-03T18:15:00Z", "2026-11-04T18:15:00Z"},
		{"AKathmanduMonthBeginsAt1815", "Asia/Kathmandu", "2026-11-30T18:14:59Z", metering.Month, "2026-10-31T18:15:00Z", "2026-11-30T18:15:00Z"},

		{"ADayOf23Hours", "America/New_York", "2026-03-08T12:00:00Z", metering.Day, "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"ADayOf25Hours", "America/New_York", "2026-11-01T12:00:00Z", metering.Day, "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"OneOClockComesTwiceTheFirst", "America/New_York", "2026-11-01T05:30:00Z", metering.Hour, "2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z"},
		{"OneOClockComesTwiceTheSecond", "America/New_York", "2026-11-01T06:30:00Z", metering.Hour, "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"},
		{"AWeekBeginsOnMonday", "UTC", "2026-11-01T23:59:59Z", metering.Week, "2026-10-26T00:00:00Z", "2026-11-02T00:00:00Z"},
		{"AWeekOverAYearsEnd", "Asia/Kathmandu", "2026-12-31T12:00:00Z", metering.Week, "2026-12-27T18:15:00Z", "2027-01-03T18:15:00Z"},
		{"AWeekWithAChange", "America/New_York", "2026-11-01T12:00:00Z", metering.Week, "2026-10-26T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"AMonthWithAChange", "America/New_York", "2026-11-20T00:00:00Z", metering.Month, "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z"},

		{"LordHoweSpringsHalfAnHourTheHourBefore", "Australia/Lord_Howe", "2026-10-03T15:20:00Z", metering.Hour, "2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z"},
		{"LordHoweSpringsHalfAnHourTheHalfHourAfter", "Australia/Lord_Howe", "2026-10-03T15:40:00Z", metering.Hour, "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
		{"LordHoweFallsHalfAnHourTheHalfHourAfter", "Australia/Lord_Howe", "2026-04-04T15:20:00Z", metering.Hour, "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"},
		{"ADayOfLordHoweMayHave23AndAHalfHours", "Australia/Lord_Howe", "2026-10-03T20:00:00Z", metering.Day, "2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"},

		{"SantiagoSkipsMidnightTheEveBefore", "America/Santiago", "2024-09-08T03:30:00Z", metering.Day, "2024-09-07T04:00:00Z", "2024-09-08T04:00:00Z"},
		{"SantiagoSkipsMidnightTheDayAfter", "America/Santiago", "2024-09-08T04:00:00Z", metering.Day, "2024-09-08T04:00:00Z", "2024-09-09T03:00:00Z"},
		{"SantiagoSkipsMidnightTheHourAfter", "America/Santiago", "2024-09-08T04:30:00Z", metering.Hour, "2024-09-08T04:00:00Z", "2024-09-08T05:00:00Z"},
		{"SantiagoRepeatsTheLastHourOfADay", "America/Santiago", "2024-04-07T03:30:00Z", metering.Day, "2024-04-06T03:00:00Z", "2024-04-07T04:00:00Z"},
		{"CairoSkipsMidnight", "Africa/Cairo", "2024-04-25T22:00:00Z", metering.Day, "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		{"CairoRepeatsTheLastHourOfADay", "Africa/Cairo", "2024-10-31T21:30:00Z", metering.Day, "2024-10-30T21:00:00Z", "2024-10-31T22:00:00Z"},
		{"BeirutSkipsMidnight", "Asia/Beirut", "2024-03-30T22:00:00Z", metering.Day, "2024-03-30T22:00:00Z", "2024-03-31T21:00:00Z"},
		{"AzoresSkipMidnight", "Atlantic/Azores", "2024-03-31T00:30:00Z", metering.Day, "2024-03-30T01:00:00Z", "2024-03-31T01:00:00Z"},
		{"HavanaHasMidnightTwiceAndTheDayBeginsWithTheFirst", "America/Havana", "2024-11-03T05:30:00Z", metering.Day, "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		{"HavanaHasMidnightTwiceTheFirstHour", "America/Havana", "2024-11-03T04:30:00Z", metering.Hour, "2024-11-03T04:00:00Z", "2024-11-03T05:00:00Z"},
		{"AsuncionSkipsTheMidnightOfAMonthWhichEndsThere", "America/Asuncion", "2023-10-01T03:59:59Z", metering.Month, "2023-09-01T04:00:00Z", "2023-10-01T04:00:00Z"},
		{"AsuncionSkipsTheMidnightOfAMonthWhichBeginsThere", "America/Asuncion", "2023-10-01T04:00:00Z", metering.Month, "2023-10-01T04:00:00Z", "2023-11-01T03:00:00Z"},
		{"ApiaSkippedADay", "Pacific/Apia", "2011-12-30T09:59:59Z", metering.Day, "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"ApiaSkippedADayAndTheNextFollows", "Pacific/Apia", "2011-12-30T10:00:00Z", metering.Day, "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"ADayThatIsLeftAndEnteredAgainBeginsOnce", "America/St_Johns", "2009-11-01T02:45:00Z", metering.Month, "2009-11-01T02:30:00Z", "2009-12-01T03:30:00Z"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, span(t, c.start, c.end), metering.WindowOf(instant(t, c.at), c.granularity, zone(t, c.zone)))
		})
	}

	t.Run("AZoneGivenAsARuleHasTheHoursOfTheSameZoneGivenAsAList", func(t *testing.T) {
		for _, z := range []struct {
			rule     *time.Location
			list     string
			instants []string
		}{
			// ZoneBounds of a rule-based zone ends at the end of a year. The hours there must still be
			// whole.
			{ruled(t, "New_York", "EST5EDT,M3.2.0,M11.1.0", -5*3600), "America/New_York", []string{"2028-12-31T10:30:00Z", "2027-01-01T00:30:00Z", "2026-03-08T06:59:00Z", "2026-11-01T05:30:00Z"}},
			{ruled(t, "St_Johns", "NST3:30NDT,M3.2.0,M11.1.0", -12600), "America/St_Johns", []string{"2026-01-01T00:10:00Z", "2025-12-31T23:50:00Z", "2028-12-31T12:00:00Z"}},
			{ruled(t, "Adelaide", "ACST-9:30ACDT,M10.1.0,M4.1.0/3", 34200), "Australia/Adelaide", []string{"2026-01-01T00:10:00Z", "2028-12-30T23:45:00Z"}},
			{ruled(t, "Santiago", "<-04>4<-03>,M9.1.6/24,M4.1.6/24", -14400), "America/Santiago", []string{"2026-09-06T03:30:00Z", "2026-09-06T04:30:00Z", "2028-12-31T15:00:00Z"}},
		} {
			for _, text := range z.instants {
				for _, g := range granularities {
					at := instant(t, text)
					require.Equal(t, metering.WindowOf(at, g, zone(t, z.list)), metering.WindowOf(at, g, z.rule), "%s of %s in %s", g, text, z.list)
					require.True(t, metering.WindowOf(at, g, z.rule).Contains(at), "%s of %s in %s", g, text, z.list)
				}
			}
		}
	})
}

// zones lists time zones. Most of them have unusual hours, midnights or dates.
var zones = []string{
	"UTC", "Asia/Kathmandu", "Asia/Kolkata", "America/New_York", "Europe/Zurich", "Australia/Lord_Howe", "Australia/Adelaide",
	"America/St_Johns", "America/Santiago", "America/Asuncion", "America/Havana", "America/Sao_Paulo", "Africa/Cairo",
	"Africa/Casablanca", "Africa/Monrovia", "Asia/Beirut", "Asia/Tehran", "Asia/Gaza", "Asia/Amman", "Atlantic/Azores",
	"America/Nuuk", "Antarctica/Troll", "Pacific/Chatham", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Kiritimati", "Etc/GMT+12",
}

// anyZone draws one of zones.
func anyZone(t *rapid.T) *time.Location {
	return zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
}

// anyInstant draws an instant, often near a change of clocks.
func anyInstant(t *rapid.T, zone *time.Location) time.Time {
	first, last := time.Date(1965, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2045, 1, 1, 0, 0, 0, 0, time.UTC)
	at := time.UnixMicro(rapid.Int64Range(first.UnixMicro(), last.UnixMicro()).Draw(t, "instant")).UTC()
	if _, change := at.In(zone).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change of clocks") {
		at = change.Add(time.Duration(rapid.IntRange(-26*3600, 26*3600).Draw(t, "seconds away")) * time.Second).UTC()
	}
	return at
}

func TestWindowsProperties(t *testing.T) {
	t.Run("EveryInstantLiesInExactlyOneWindow", rapid.MakeCheck(func(t *rapid.T) {
		zone := anyZone(t)
		at := anyInstant(t, zone)
		for _, g := range granularities {
			w := metering.WindowOf(at, g, zone)
			require.True(t, w.Contains(at), "%s %v does not contain %v", g, w, at.In(zone))
			require.Equal(t, w, metering.WindowOf(w.Start, g, zone), "the first instant of the %s", g)
			require.Equal(t, w, metering.WindowOf(w.End.Add(-time.Nanosecond), g, zone), "the last instant of the %s", g)
			require.Equal(t, w.End, metering.WindowOf(w.End, g, zone).Start, "the next %s", g)
			require.Equal(t, w.Start, metering.WindowOf(w.Start.Add(-time.Nanosecond), g, zone).End, "the former %s", g)
		}
	}))

	t.Run("HoursTileDaysAndDaysTileWeeksAndMonths", rapid.MakeCheck(func(t *rapid.T) {
		zone := anyZone(t)
		at := anyInstant(t, zone)
		for _, outer := range granularities[1:] {
			inner := metering.Day
			if outer == metering.Day {
				inner = metering.Hour
			}
			w := metering.WindowOf(at, outer, zone)
			next := w.Start
			for next.Before(w.End) {
				part := metering.WindowOf(next, inner, zone)
				require.Equal(t, next, part.Start, "%ss of %v", inner, w)
				next = part.End
			}
			require.Equal(t, w.End, next, "%ss of %v", inner, w)
		}
	}))

	t.Run("AnHourIsOneLocalHourUnderOneOffset", rapid.MakeCheck(func(t *rapid.T) {
		zone := anyZone(t)
		w := metering.WindowOf(anyInstant(t, zone), metering.Hour, zone)
		require.LessOrEqual(t, w.End.Sub(w.Start), time.Hour)
		first, last := w.Start.In(zone), w.End.Add(-time.Nanosecond).In(zone)
		require.Equal(t, first.Format("2006-01-02T15 -0700"), last.Format("2006-01-02T15 -0700"))
	}))

	t.Run("ADayBeginsWithTheFirstInstantOfItsDate", rapid.MakeCheck(func(t *rapid.T) {
		zone := anyZone(t)
		at := anyInstant(t, zone)
		w := metering.WindowOf(at, metering.Day, zone)
		require.NotEqual(t, w.Start.In(zone).Format(time.DateOnly), w.Start.Add(-time.Nanosecond).In(zone).Format(time.DateOnly))
		if zone.String() != "America/St_Johns" { // its clocks have gone back over midnight, into the previous day
			require.Equal(t, at.In(zone).Format(time.DateOnly), w.Start.In(zone).Format(time.DateOnly))
		}
	}))
}

func TestSplitDividesRangeIntoMonthsAndHours(t *testing.T) {
	cases := []struct {
		name, zone, start, end string
		want                   metering.Span
	}{
		{"NothingOfAnEmptyRange", "UTC", "2026-11-03T10:00:00Z", "2026-11-03T10:00:00Z", metering.Span{}},
		{"NothingOfARangeThatEndsBeforeItStarts", "UTC", "2026-11-03T10:00:00Z", "2026-11-02T10:00:00Z", metering.Span{}},
		{"AMonth", "UTC", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z",
			metering.Span{Months: span(t, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")}},
		{"HoursWithoutAMonth", "UTC", "2026-11-03T10:00:00Z", "2026-11-03T12:00:00Z",
			metering.Span{Hours: []metering.Range{span(t, "2026-11-03T10:00:00Z", "2026-11-03T12:00:00Z")}}},
		{"PartOfAnHour", "UTC", "2026-11-03T10:10:00Z", "2026-11-03T10:50:00Z",
			metering.Span{Ragged: []metering.Range{span(t, "2026-11-03T10:10:00Z", "2026-11-03T10:50:00Z")}}},
		{"PartsOfTwoHoursWithNoneBetween", "UTC", "2026-11-03T10:30:00Z", "2026-11-03T11:20:00Z",
			metering.Span{Ragged: []metering.Range{span(t, "2026-11-03T10:30:00Z", "2026-11-03T11:00:00Z"), span(t, "2026-11-03T11:00:00Z", "2026-11-03T11:20:00Z")}}},
		{"TheFirstPartOfAnHour", "UTC", "2026-11-03T10:00:00Z", "2026-11-03T10:20:00Z",
			metering.Span{Ragged: []metering.Range{span(t, "2026-11-03T10:00:00Z", "2026-11-03T10:20:00Z")}}},
		{"TheLastPartOfAnHour", "UTC", "2026-11-03T10:20:00Z", "2026-11-03T11:00:00Z",
			metering.Span{Ragged: []metering.Range{span(t, "2026-11-03T10:20:00Z", "2026-11-03T11:00:00Z")}}},
		{"EverythingAtOnce", "Asia/Kathmandu", "2026-10-30T18:20:00Z", "2026-12-01T18:20:00Z", metering.Span{
			Months: span(t, "2026-10-31T18:15:00Z", "2026-11-30T18:15:00Z"),
			Hours: []metering.Range{
				span(t, "2026-10-30T19:15:00Z", "2026-10-31T18:15:00Z"), span(t, "2026-11-30T18:15:00Z", "2026-12-01T18:15:00Z"),
			},
			Ragged: []metering.Range{
				span(t, "2026-10-30T18:20:00Z", "2026-10-30T19:15:00Z"), span(t, "2026-12-01T18:15:00Z", "2026-12-01T18:20:00Z"),
			},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := span(t, c.start, c.end)
			require.Equal(t, c.want, metering.Split(r, zone(t, c.zone)))
		})
	}

	t.Run("ItsPartsTileTheRangeAndAreWhatTheySayTheyAre", rapid.MakeCheck(func(t *rapid.T) {
		zone := anyZone(t)
		start := anyInstant(t, zone)
		length := rapid.OneOf(
			rapid.Int64Range(0, int64(3*time.Hour)), rapid.Int64Range(0, int64(100*24*time.Hour)),
		).Draw(t, "length")
		r := metering.Range{Start: start, End: start.Add(time.Duration(length)).Truncate(time.Microsecond)}
		if rapid.Bool().Draw(t, "from the start of an hour") {
			r.Start = metering.WindowOf(r.Start, metering.Hour, zone).Start
		}
		if rapid.Bool().Draw(t, "to the end of a month") {
			r.End = metering.WindowOf(r.End, metering.Month, zone).End
		}
		split := metering.Split(r, zone)
		parts := append(append([]metering.Range{}, split.Ragged...), split.Hours...)
		if !split.Months.Empty() {
			parts = append(parts, split.Months)
		}
		byStart := make(map[time.Time]metering.Range)
		for _, part := range parts {
			require.False(t, part.Empty())
			byStart[part.Start] = part
		}
		require.Len(t, byStart, len(parts), "two parts begin at the same instant")
		next := r.Start
		for next.Before(r.End) {
			part, ok := byStart[next]
			require.True(t, ok, "nothing begins at %v", next)
			next = part.End
		}
		require.Equal(t, r.End, next)

		require.LessOrEqual(t, len(split.Hours), 2)
		require.LessOrEqual(t, len(split.Ragged), 2)
		whole := func(r metering.Range, g metering.Granularity) {
			require.Equal(t, r.Start, metering.WindowOf(r.Start, g, zone).Start)
			require.Equal(t, r.End, metering.WindowOf(r.End, g, zone).Start)
		}
		if !split.Months.Empty() {
			whole(split.Months, metering.Month)
		}
		for _, hours := range split.Hours {
			whole(hours, metering.Hour)
			require.True(t, metering.Split(hours, zone).Months.Empty(), "a month is left among the hours %v", hours)
		}
		for _, ragged := range split.Ragged {
			hour := metering.WindowOf(ragged.Start, metering.Hour, zone)
			require.False(t, ragged.End.After(hour.End), "%v is more than one hour's", ragged)
			require.NotEqual(t, hour, ragged, "a whole hour is called ragged")
		}
	}))
}
