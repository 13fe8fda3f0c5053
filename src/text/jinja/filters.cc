// The table of filters.
#include "text/jinja/filters.h"

namespace cmforge::jinja {
namespace {

// Sorted by name. `len` and `escape` come from C in the reference: their argument has no name.
constexpr Builtin kFilters[] = {
    {"abs", "/x", filters::Abs},
    {"attr", "obj name", filters::Attr},
    {"batch", "value linecount fill_with?", filters::Batch},
    {"capitalize", "s", filters::Capitalize},
    {"center", "value width?", filters::Center},
    {"count", "/obj", filters::Len},
    {"d", "value default_value? boolean?", filters::Default},
    {"default", "value default_value? boolean?", filters::Default},
    {"dictsort", "value case_sensitive? by? reverse?", filters::DictSort},
    {"e", "/s", filters::Escape},
    {"escape", "/s", filters::Escape},
    {"filesizeformat", "value binary?", filters::FileSizeFormat},
    {"first", "seq", filters::First},
    {"float", "value default?", filters::Float},
    {"forceescape", "value", filters::ForceEscape},
    {"format", "value * **", filters::Format},
    {"groupby", "value attribute default? case_sensitive?", filters::GroupBy},
    {"indent", "s width? first? blank?", filters::Indent},
    {"int", "value default? base?", filters::Int},
    {"items", "value", filters::Items},
    {"join", "value d? attribute?", filters::Join},
    {"last", "seq", filters::Last},
    {"length", "/obj", filters::Len},
    {"list", "value", filters::List},
    {"lower", "s", filters::Lower},
    {"map", "value * **", filters::Map},
    {"max", "value case_sensitive? attribute?", filters::Max},
    {"min", "value case_sensitive? attribute?", filters::Min},
    {"pprint", "value", filters::PrettyPrint},
    {"random", "seq", filters::Random},
    {"reject", "value * **", filters::Reject},
    {"rejectattr", "value * **", filters::RejectAttr},
    {"replace", "s old new count?", filters::Replace},
    {"reverse", "value", filters::Reverse},
    {"round", "value precision? method?", filters::Round},
    {"safe", "value", filters::Safe},
    {"select", "value * **", filters::Select},
    {"selectattr", "value * **", filters::SelectAttr},
    {"slice", "value slices fill_with?", filters::Slice},
    {"sort", "value reverse? case_sensitive? attribute?", filters::Sort},
    {"string", "s", filters::String},
    {"striptags", "value", filters::StripTags},
    {"sum", "iterable attribute? start?", filters::Sum},
    {"title", "s", filters::Title},
    {"tojson", "value ensure_ascii? indent? separators? sort_keys?", filters::ToJson},
    {"trim", "value chars?", filters::Trim},
    {"truncate", "s length? killwords? end? leeway?", filters::Truncate},
    {"unique", "value case_sensitive? attribute?", filters::Unique},
    {"upper", "s", filters::Upper},
    {"urlencode", "value", filters::UrlEncode},
    {"urlize", "value trim_url_limit? nofollow? target? rel? extra_schemes?", filters::Urlize},
    {"wordcount", "s", filters::WordCount},
    {"wordwrap", "s width? break_long_words? wrapstring? break_on_hyphens?", filters::WordWrap},
    {"xmlattr", "d autospace?", filters::XmlAttr},
};

}  // namespace

const Builtin* FindFilter(std::string_view name) { return FindSorted(kFilters, name); }

}  // namespace cmforge::jinja
