/* SPDX-License-Identifier: Apache-2.0 */
#include "nixl/options.h"

#include <cerrno>
#include <cstdlib>

namespace hx
{

namespace
{

enum class Type { text, number, flag };

struct Row {
    const char *name;
    const char *def;
    Type type;
    long least, most;
    std::string Options::*text;
    int Options::*number;
    bool Options::*flag;
};

constexpr long day_ms = 86400000;

const Row rows[] = {
    {"nics", "", Type::text, 0, 0, &Options::nics, nullptr, nullptr},
    {"rails", "", Type::text, 0, 0, &Options::rails, nullptr, nullptr},
    {"advertise", "", Type::text, 0, 0, &Options::advertise, nullptr, nullptr},
    {"device", "-1", Type::number, -1, 1023, nullptr, &Options::device, nullptr},
    {"trusted", "no", Type::flag, 0, 0, nullptr, nullptr, &Options::trusted},
    {"timeout_ms", "0", Type::number, 0, 7 * day_ms, nullptr, &Options::timeout_ms, nullptr},
    {"connect_ms", "10000", Type::number, 1, day_ms, nullptr, &Options::connect_ms, nullptr},
};

std::string read_number(const Row &row, const std::string &value, Options &out)
{
    char *end = nullptr;
    errno = 0;
    long n = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end || errno || n < row.least || n > row.most)
        return std::string("parameter ") + row.name + "=" + value + ": must be a number from " +
               std::to_string(row.least) + " to " + std::to_string(row.most);
    out.*row.number = static_cast<int>(n);
    return "";
}

std::string read_flag(const Row &row, const std::string &value, Options &out)
{
    bool yes = value == "yes" || value == "true" || value == "1";
    if (!yes && value != "no" && value != "false" && value != "0")
        return std::string("parameter ") + row.name + "=" + value + ": must be yes or no";
    out.*row.flag = yes;
    return "";
}

std::string read_value(const Row &row, const std::string &value, Options &out)
{
    switch (row.type) {
    case Type::number:
        return read_number(row, value, out);
    case Type::flag:
        return read_flag(row, value, out);
    default:
        out.*row.text = value;
        return "";
    }
}

const Row *find_row(const std::string &name)
{
    for (const Row &row : rows)
        if (name == row.name)
            return &row;
    return nullptr;
}

} // namespace

std::string read_options(const nixl_b_params_t &params, Options &out)
{
    for (const auto &[name, value] : params) {
        if (name == "error") /* get_plugin_params() includes this parameter, and users pass the defaults back */
            continue;
        const Row *row = find_row(name);
        if (!row)
            return "parameter " + name + " is unknown; get_plugin_params(\"HAWSER\") lists the parameters";
        std::string why = read_value(*row, value, out);
        if (!why.empty())
            return why;
    }
    return "";
}

nixl_b_params_t default_options()
{
    nixl_b_params_t all;
    for (const Row &row : rows)
        all[row.name] = row.def;
    return all;
}

} // namespace hx
