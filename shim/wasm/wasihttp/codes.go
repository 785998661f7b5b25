package wasihttp

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// Case is a case of the variant error-code.
type Case uint8

// The cases of error-code.
const (
	DNSTimeout Case = iota
	DNSError
	DestinationNotFound
	DestinationUnavailable
	DestinationIPProhibited
	DestinationIPUnroutable
	ConnectionRefused
	ConnectionTerminated
	ConnectionTimeout
	ConnectionReadTimeout
	ConnectionWriteTimeout
	ConnectionLimitReached
	TLSProtocolError
	TLSCertificateError
	TLSAlertReceived
	RequestDenied
	RequestLengthRequired
	RequestBodySize
	RequestMethodInvalid
	RequestURIInvalid
	RequestURITooLong
	RequestHeaderSectionSize
	RequestHeaderSize
	RequestTrailerSectionSize
	RequestTrailerSize
	ResponseIncomplete
	ResponseHeaderSectionSize
	ResponseHeaderSize
	ResponseBodySize
	ResponseTrailerSectionSize
	ResponseTrailerSize
	ResponseTransferCoding
	ResponseContentCoding
	ResponseTimeout
	UpgradeFailed
	ProtocolError
	LoopDetected
	ConfigurationError
	InternalError
)

// payload is the layout of what a case carries: an optional text, an optional number, or both, the
// whole of it optional too or not. Offsets and slots count from the payload's start.
type payload struct {
	text, number         uint32 // offsets in memory
	width                uint32 // of the number, in bytes; its value is so far behind its discriminant
	textSlot, numberSlot int    // in flat form
	hasText, wrapped     bool
}

// The payloads.
var (
	none           = payload{}
	textNumber     = payload{hasText: true, number: 12, width: 2, numberSlot: 3} // option<string>, option<u16>
	numberText     = payload{hasText: true, text: 4, width: 1, textSlot: 2}      // option<u8>, option<string>
	size64         = payload{width: 8}                                           // option<u64>
	size32         = payload{width: 4}                                           // option<u32>
	fieldSize      = payload{hasText: true, number: 12, width: 4, numberSlot: 3} // option<string>, option<u32>
	maybeFieldSize = payload{hasText: true, text: 4, number: 16, width: 4, textSlot: 1, numberSlot: 4, wrapped: true}
	textOnly       = payload{hasText: true} // option<string>
)

// cases are the names and payloads of the cases.
var cases = [...]struct {
	name    string
	payload payload
}{
	DNSTimeout:                 {"DNS-timeout", none},
	DNSError:                   {"DNS-error", textNumber},
	DestinationNotFound:        {"destination-not-found", none},
	DestinationUnavailable:     {"destination-unavailable", none},
	DestinationIPProhibited:    {"destination-IP-prohibited", none},
	DestinationIPUnroutable:    {"destination-IP-unroutable", none},
	ConnectionRefused:          {"connection-refused", none},
	ConnectionTerminated:       {"connection-terminated", none},
	ConnectionTimeout:          {"connection-timeout", none},
	ConnectionReadTimeout:      {"connection-read-timeout", none},
	ConnectionWriteTimeout:     {"connection-write-timeout", none},
	ConnectionLimitReached:     {"connection-limit-reached", none},
	TLSProtocolError:           {"TLS-protocol-error", none},
	TLSCertificateError:        {"TLS-certificate-error", none},
	TLSAlertReceived:           {"TLS-alert-received", numberText},
	RequestDenied:              {"HTTP-request-denied", none},
	RequestLengthRequired:      {"HTTP-request-length-required", none},
	RequestBodySize:            {"HTTP-request-body-size", size64},
	RequestMethodInvalid:       {"HTTP-request-method-invalid", none},
	RequestURIInvalid:          {"HTTP-request-URI-invalid", none},
	RequestURITooLong:          {"HTTP-request-URI-too-long", none},
	RequestHeaderSectionSize:   {"HTTP-request-header-section-size", size32},
	RequestHeaderSize:          {"HTTP-request-header-size", maybeFieldSize},
	RequestTrailerSectionSize:  {"HTTP-request-trailer-section-size", size32},
	RequestTrailerSize:         {"HTTP-request-trailer-size", fieldSize},
	ResponseIncomplete:         {"HTTP-response-incomplete", none},
	ResponseHeaderSectionSize:  {"HTTP-response-header-section-size", size32},
	ResponseHeaderSize:         {"HTTP-response-header-size", fieldSize},
	ResponseBodySize:           {"HTTP-response-body-size", size64},
	ResponseTrailerSectionSize: {"HTTP-response-trailer-section-size", size32},
	ResponseTrailerSize:        {"HTTP-response-trailer-size", fieldSize},
	ResponseTransferCoding:     {"HTTP-response-transfer-coding", textOnly},
	ResponseContentCoding:      {"HTTP-response-content-coding", textOnly},
	ResponseTimeout:            {"HTTP-response-timeout", none},
	UpgradeFailed:              {"HTTP-upgrade-failed", none},
	ProtocolError:              {"HTTP-protocol-error", none},
	LoopDetected:               {"loop-detected", none},
	ConfigurationError:         {"configuration-error", none},
	InternalError:              {"internal-error", textOnly},
}

func (c Case) String() string { return cases[c].name }

// ErrorCode is the variant error-code of wasi:http. Text and Number are what the case's payload has
// of them, if they are there.
type ErrorCode struct {
	Case      Case
	Text      string
	Number    uint64
	HasText   bool
	HasNumber bool
}

// code is an ErrorCode without a payload.
func code(c Case) error { return ErrorCode{Case: c} }

// sized is an ErrorCode about so many bytes.
func sized(c Case, n uint64) error { return ErrorCode{Case: c, Number: n, HasNumber: true} }

// internal is what no other case says.
func internal(text string) ErrorCode {
	return ErrorCode{Case: InternalError, Text: text, HasText: true}
}

func (e ErrorCode) Error() string {
	s := e.Case.String()
	if e.HasText {
		s += fmt.Sprintf(" %q", e.Text)
	}
	if e.HasNumber {
		s += fmt.Sprintf(" %d", e.Number)
	}
	return s
}

// Layout of an error-code in memory.
const (
	codeSize    = 32
	codeAlign   = 8
	codePayload = 8
)

// maxCodeText bounds what is kept of the text of a guest's error-code, in bytes.
const maxCodeText = 1 << 10

// putCode writes an error-code: that of the error, or an internal-error that names it.
func putCode(c *canonical.Call, at uint32, err error) {
	var e ErrorCode
	if !errors.As(err, &e) {
		e = internal(err.Error())
	}
	p := cases[e.Case].payload
	c.Put8(at, uint8(e.Case))
	at += codePayload
	if p.wrapped {
		c.PutBool(at, e.HasText || e.HasNumber)
	}
	if p.width > 0 {
		c.PutBool(at+p.number, e.HasNumber)
		switch value := at + p.number + p.width; p.width {
		case 1:
			c.Put8(value, uint8(e.Number))
		case 2:
			c.Put16(value, uint16(e.Number))
		case 4:
			c.Put32(value, uint32(e.Number))
		default:
			c.Put64(value, e.Number)
		}
	}
	if p.hasText {
		c.PutBool(at+p.text, e.HasText)
		if e.HasText {
			c.PutText(at+p.text+4, e.Text)
		}
	}
}

// readCode reads a flat error-code: its discriminant and six values.
func readCode(c *canonical.Call, flat []uint64) ErrorCode {
	e := ErrorCode{Case: Case(canonical.Discriminant(flat[0], uint32(len(cases))))}
	p, slots := cases[e.Case].payload, flat[1:]
	if p.wrapped && canonical.Discriminant(slots[0], 2) == 0 {
		return e
	}
	if p.width > 0 {
		if e.HasNumber = canonical.Discriminant(slots[p.numberSlot], 2) == 1; e.HasNumber {
			e.Number = slots[p.numberSlot+1] & (1<<(8*p.width) - 1)
		}
	}
	if p.hasText {
		if e.HasText = canonical.Discriminant(slots[p.textSlot], 2) == 1; e.HasText {
			e.Text = codeText(c, slots[p.textSlot+1], slots[p.textSlot+2])
		}
	}
	return e
}

// loadCode reads an error-code in memory.
func loadCode(c *canonical.Call, at uint32) ErrorCode {
	b := c.View(at, codeSize)
	e := ErrorCode{Case: Case(canonical.Discriminant(uint64(b[0]), uint32(len(cases))))}
	p := cases[e.Case].payload
	b = b[codePayload:]
	if p.wrapped && canonical.Discriminant(uint64(b[0]), 2) == 0 {
		return e
	}
	if p.width > 0 {
		if e.HasNumber = canonical.Discriminant(uint64(b[p.number]), 2) == 1; e.HasNumber {
			for i := range p.width {
				e.Number |= uint64(b[p.number+p.width+i]) << (8 * i)
			}
		}
	}
	if p.hasText {
		if e.HasText = canonical.Discriminant(uint64(b[p.text]), 2) == 1; e.HasText {
			e.Text = codeText(c, word(b[p.text:], 1), word(b[p.text:], 2))
		}
	}
	return e
}

// codeText reads the text of an error-code.
func codeText(c *canonical.Call, at, length uint64) string {
	text := c.Text(at, length)
	end := min(len(text), maxCodeText)
	for end < len(text) && end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return string(text[:end])
}
