// The filters, by what they work on. Their parameters stand in the table of filters.cc.
#pragma once

#include "base/result.h"
#include "text/jinja/callables.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja::filters {

using Function = Result<Value>(Runtime& rt, const Bound& b);

// filters_text.cc: of strings; other values are turned into text first
Function Capitalize, Center, Escape, ForceEscape, Format, Indent, Join, Lower, Replace, Safe, String, Title,
    Trim, Truncate, Upper, WordCount;
// filters_markup.cc: for HTML and URLs
Function StripTags, UrlEncode, Urlize, XmlAttr;
// filters_wrap.cc
Function WordWrap;
// filters_items.cc: of sequences and mappings
Function Batch, DictSort, First, GroupBy, Last, Len, List, Max, Min, Random, Reverse, Slice, Sort, Sum,
    Unique;
// filters_lazy.cc: giving iterators
Function Items, Map, Reject, RejectAttr, Select, SelectAttr;
// filters_values.cc: of single values
Function Abs, Attr, Default, FileSizeFormat, Float, Int, Round, ToJson;
// pretty_print.cc
Function PrettyPrint;

/// item.a.b.0 for an attribute argument "a.b.0", a number, or none (the item itself).
/// `fallback` replaces undefined steps unless it is missing or none.
Result<Value> GetPath(Runtime& rt, const Value& item, const Value& attribute,
                      const Value& fallback = Value());

/// Strings in lower case, unless `case_sensitive`; other values as they are.
Result<Value> IgnoreCase(Runtime& rt, const Value& value, bool case_sensitive);

/// An optional truth argument.
bool Flag(const Bound& b, size_t i);

}  // namespace cmforge::jinja::filters
