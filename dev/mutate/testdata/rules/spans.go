package rules

func (s span) later() span { return span{s.since.Add(s.grace), s.grace} }
